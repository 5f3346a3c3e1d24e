// Package cachecontrol sets Cache-Control so that no shared cache stores a response:
// responses depend on the user. A handler may set another value.
package cachecontrol

import "net/http"

// value is shared by all responses: net/http does not change it.
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
