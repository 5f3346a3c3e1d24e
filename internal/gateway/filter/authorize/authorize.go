// Package authorize is the filter that authorizes requests.
package authorize

import (
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// The keys of the annotations in audit events.
const (
	decisionKey = "authorization.k8s.io/decision"
	reasonKey   = "authorization.k8s.io/reason"
)

// Observer is called after each decision. result is "allowed", "denied", "no-opinion" or
// "error".
type Observer func(result string, took time.Duration)

// New returns the filter. It answers 403 unless a allows the request, before the body is read.
func New(a authz.Authorizer, observe Observer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			attributes := authz.AttributesOf(r)
			start := time.Now()
			decision, reason, err := a.Authorize(ctx, attributes)
			took := time.Since(start)
			observe(result(decision, err), took)
			audit.AddLatency(ctx, audit.Authorization, took)
			if decision == authz.Allow {
				audit.Annotate(ctx, decisionKey, "allow")
				audit.Annotate(ctx, reasonKey, reason)
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("X-Content-Type-Options", "nosniff")
			if err != nil {
				audit.Annotate(ctx, reasonKey, "internal error")
				apiresponse.InternalServerError(w, r, err)
				return
			}
			audit.Annotate(ctx, decisionKey, "forbid")
			audit.Annotate(ctx, reasonKey, reason)
			apiresponse.Error(w, r, authz.Forbidden(attributes, reason))
		})
	}
}

func result(decision authz.Decision, err error) string {
	switch {
	case decision == authz.Allow:
		return "allowed"
	case err != nil:
		return "error"
	case decision == authz.Deny:
		return "denied"
	}
	return "no-opinion"
}
