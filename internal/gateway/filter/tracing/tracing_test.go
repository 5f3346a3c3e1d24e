package tracing

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/tracing"
)

// TestBaggageOfStrangers checks that the baggage of a client is sent on, for instance to webhooks, only if the
// client is an administrator.
func TestBaggageOfStrangers(t *testing.T) {
	tracer := tracing.New(sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample()))))
	for group, want := range map[string]string{request.GroupMasters: "a=b", request.GroupAuthenticated: ""} {
		got := http.Header{}
		h := Server(tracer)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			tracing.Propagator.Inject(r.Context(), propagation.HeaderCarrier(got))
		}))
		r := httptest.NewRequest("GET", "/version", nil)
		r.Header.Set("Baggage", "a=b")
		r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(request.WithUser(r.Context(),
			&request.User{Name: "jane", Groups: []string{group}})))
		if b := got.Get("Baggage"); b != want {
			t.Errorf("%s: baggage %q, want %q", group, b, want)
		}
	}
}
