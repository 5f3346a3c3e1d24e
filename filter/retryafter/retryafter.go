// Package retryafter sends clients elsewhere while the server stops.
package retryafter

import (
	"net/http"
	"strings"
)

// seconds is when a client may try again, by then at another server.
const seconds = "5"

// exempt are the paths that are answered to the end.
var exempt = []string{"/readyz", "/livez", "/healthz", "/metrics"}

// New returns the filter. While ending says so, requests are answered 429 and
// their connections end, except for those of probes and of the server itself.
func New(ending func() bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !ending() || isExempt(r) {
				next.ServeHTTP(w, r)
				return
			}
			Stopping(w)
		})
	}
}

// Stopping answers 429 and ends the connection.
func Stopping(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", seconds)
	http.Error(w, "The apiserver is shutting down, please try again later.", http.StatusTooManyRequests)
}

func isExempt(r *http.Request) bool {
	if strings.HasPrefix(r.UserAgent(), "kube-apiserver/") {
		return true
	}
	for _, prefix := range exempt {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return true
		}
	}
	return false
}
