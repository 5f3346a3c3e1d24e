package tracing

import (
	"net"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Propagator reads and writes the headers traceparent and tracestate (W3C Trace Context) and baggage.
var Propagator propagation.TextMapPropagator = propagation.NewCompositeTextMapPropagator(
	propagation.TraceContext{}, propagation.Baggage{},
)

// Transport returns a transport that records a span for each request whose context has one, and sends the header
// traceparent with it.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. The span ends when the header of the response is there.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !FromContext(r.Context()).Recording() {
		return t.next.RoundTrip(r)
	}
	ctx, span := StartClient(r.Context(), "HTTP "+r.Method, r.URL.Host)
	defer span.End()
	r = r.Clone(ctx) // a RoundTripper must not change the request
	Propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	span.Set(attribute.String("http.request.method", r.Method), attribute.String("url.full", withoutSecrets(r.URL)))
	response, err := t.next.RoundTrip(r)
	if err != nil {
		span.Fail(err)
		return nil, err
	}
	span.Set(attribute.Int("http.response.status_code", response.StatusCode))
	if response.StatusCode >= http.StatusBadRequest {
		span.FailStatus()
	}
	return response, nil
}

// withoutSecrets returns a URL without the name and password of a user, and without the parameters that are credentials.
func withoutSecrets(u *url.URL) string {
	return u.Scheme + "://" + u.Host + request.RedactedURI(u)
}

// setServer sets the attributes of a server from its host and port.
func (s Span) setServer(address string) {
	if s.span == nil {
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		s.Set(attribute.String("server.address", address))
		return
	}
	s.Set(attribute.String("server.address", host))
	if number, err := strconv.Atoi(port); err == nil {
		s.Set(attribute.Int("server.port", number))
	}
}
