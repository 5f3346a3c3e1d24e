// Package forward is the filter that sends requests on to the servers that handle them: to extension API servers, and to
// other servers on the same store.
package forward

import "net/http"

// New returns the filter. forwarder returns the handler that forwards a request, or nil if this server handles the
// request. The filter comes before the one that reads the body: the body of a request that is forwarded is sent on
// while it arrives. New returns nil if forwarder is nil.
func New(forwarder func(*http.Request) http.Handler) func(http.Handler) http.Handler {
	if forwarder == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h := forwarder(r); h != nil {
				h.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}
