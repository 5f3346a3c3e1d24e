// Package inflight bounds how many requests are served at a time.
package inflight

import (
	"net/http"
	"sync/atomic"

	"github.com/keelson-dev/keelson/filter/deadline"
	"github.com/keelson-dev/keelson/request"
)

// retryAfter is when a client may try again, in seconds.
const retryAfter = "1"

// Limiter counts requests that change something and those that read, each up to
// its limit. Long-running requests and those of system:masters are not bounded.
type Limiter struct {
	// MaxReadOnly and MaxMutating are the limits; 0 is none.
	MaxReadOnly, MaxMutating int64

	readOnly, mutating atomic.Int64
}

// Current returns how many bounded requests are being served.
func (l *Limiter) Current() (readOnly, mutating int64) { return l.readOnly.Load(), l.mutating.Load() }

// Filter returns the filter. A request above the limit is answered 429.
func (l *Limiter) Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := request.InfoFrom(r.Context())
		if deadline.LongRunning(info) {
			next.ServeHTTP(w, r)
			return
		}
		counter, limit := &l.mutating, l.MaxMutating
		switch info.Verb {
		case "get", "list", "head", "options":
			counter, limit = &l.readOnly, l.MaxReadOnly
		}
		defer counter.Add(-1)
		if n := counter.Add(1); limit > 0 && n > limit && !request.UserFrom(r.Context()).InGroup(request.GroupMasters) {
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}
