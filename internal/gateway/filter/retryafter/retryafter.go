// Package retryafter is the filter that refuses requests while the server stops, so that
// clients go to another server.
package retryafter

import (
	"net/http"
	"slices"
	"strings"
)

// retryAfterSeconds is the value of the header Retry-After.
const retryAfterSeconds = "5"

// exemptPaths are the prefixes of paths that are always served.
var exemptPaths = []string{"/readyz", "/livez", "/healthz", "/metrics"}

// New returns the filter. While ending returns true, it answers 429 and closes the connection,
// except for health checks, metrics and requests of kube-apiserver itself.
func New(ending func() bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !ending() || isExempt(r) {
				next.ServeHTTP(w, r)
				return
			}
			RefuseStopping(w)
		})
	}
}

// RefuseStopping answers 429 because the server stops, and closes the connection.
func RefuseStopping(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", retryAfterSeconds)
	http.Error(w, "The apiserver is shutting down, please try again later.", http.StatusTooManyRequests)
}

func isExempt(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), "kube-apiserver/") ||
		slices.ContainsFunc(exemptPaths, func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) })
}
