package authorize

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// verdict is an authorizer that always decides the same.
type verdict struct {
	decision authz.Decision
	reason   string
	err      error
}

func (v verdict) Authorize(context.Context, authz.Attributes) (authz.Decision, string, error) {
	return v.decision, v.reason, v.err
}

func TestDecisions(t *testing.T) {
	failed := errors.New("the webhook is gone")
	const forbidden = `pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "n"`
	for _, test := range []struct {
		verdict                             verdict
		code                                int
		body, result, annotation, annotated string
	}{
		{verdict{authz.Allow, "a role", nil}, 200, "served", "allowed", "allow", "a role"},
		{verdict{authz.Allow, "a role", failed}, 200, "served", "allowed", "allow", "a role"},
		{verdict{authz.Deny, "a rule", nil}, 403, forbidden + ": a rule", "denied", "forbid", "a rule"},
		{verdict{authz.NoOpinion, "", nil}, 403, forbidden, "no-opinion", "forbid", ""},
		{verdict{authz.NoOpinion, "", failed}, 500, "the webhook is gone", "error", "", "internal error"},
	} {
		r := httptest.NewRequest("GET", "/api/v1/namespaces/n/pods", nil)
		record := audit.NewRecord(nil, nil, "", time.Time{})
		ctx := request.WithUser(request.WithInfo(audit.With(r.Context(), record), request.ParseInfo(r)), &request.User{Name: "ann"})
		w := httptest.NewRecorder()
		var observed []string
		New(test.verdict, func(result string, _ time.Duration) { observed = append(observed, result) })(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) },
		)).ServeHTTP(w, r.WithContext(ctx))
		if w.Code != test.code || !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), test.body) {
			t.Errorf("%+v: %d %s", test.verdict, w.Code, w.Body)
		}
		if refused := w.Header().Get("X-Content-Type-Options") == "nosniff"; refused != (test.code != 200) {
			t.Errorf("%+v: nosniff: %t", test.verdict, refused)
		}
		if len(observed) != 1 || observed[0] != test.result {
			t.Errorf("%+v: observed %q, want %s", test.verdict, observed, test.result)
		}
		decision, _ := record.Annotation(decisionKey)
		if reason, _ := record.Annotation(reasonKey); decision != test.annotation || reason != test.annotated {
			t.Errorf("%+v: annotated %q, %q", test.verdict, decision, reason)
		}
	}
}
