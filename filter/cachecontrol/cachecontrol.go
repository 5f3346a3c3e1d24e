// Package cachecontrol keeps answers out of shared caches: they depend on who
// asks. A handler may say otherwise for its own.
package cachecontrol

import "net/http"

// value is shared by all answers: net/http does not change it.
var value = []string{"no-cache, private"}

// New returns the filter.
func New() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Cache-Control"] = value
			next.ServeHTTP(w, r)
		})
	}
}
