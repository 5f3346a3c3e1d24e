// Package inflight bounds how many requests are served at a time.
//
// A request has a seat while the server works on it, and not while it waits for its
// client: package body gives the seat back while the body is read, and
// responserecorder.Recorder does so while the answer is written. The memory that answers take
// meanwhile is bounded in its own right, by AnswerBudget.
package inflight

import (
	"net/http"

	"github.com/keelson-dev/keelson/filter/deadline"
	"github.com/keelson-dev/keelson/filter/fairshare"
	"github.com/keelson-dev/keelson/filter/responserecorder"
	"github.com/keelson-dev/keelson/request"
)

// retryAfter is when a client may try again, in seconds.
const retryAfter = "1"

// AnswerBudget is how many bytes of memory the answers may take that wait for their
// clients to read them. It is divided like seats.
const AnswerBudget = 128 << 20

// Limiter counts requests that change something and those that read, each up to
// its limit, divided between users as package fairshare describes. Long-running requests and
// those of system:masters are not bounded.
type Limiter struct{ readOnly, mutating, answers *fairshare.Pool }

// New returns a Limiter; a limit of 0 is none.
func New(readOnly, mutating int64) *Limiter {
	return &Limiter{readOnly: fairshare.NewPool(readOnly), mutating: fairshare.NewPool(mutating), answers: fairshare.NewPool(AnswerBudget)}
}

// Current returns how many bounded requests are being served.
func (l *Limiter) Current() (readOnly, mutating int64) { return l.readOnly.Taken(), l.mutating.Taken() }

// Filter returns the filter. A request above the limit is answered 429. So is one that
// changes something, of a user whose unread answers take all the memory that they may:
// its own answer could not be refused when the change is made.
func (l *Limiter) Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := request.InfoFrom(r.Context())
		if deadline.LongRunning(info) {
			next.ServeHTTP(w, r)
			return
		}
		pool := l.mutating
		switch info.Verb {
		case "get", "list", "head", "options":
			pool = l.readOnly
		}
		rw := responserecorder.Wrap(w)
		rw.Seat = pool.Of(request.UserFrom(r.Context()))
		defer rw.Seat.Release()
		rw.Memory = rw.Seat.In(l.answers)
		defer rw.Memory.Release()
		if !rw.Seat.Take(1) || pool == l.mutating && !rw.Memory.Take(0) {
			TooMany(rw)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// TooMany answers 429.
func TooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", retryAfter)
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}
