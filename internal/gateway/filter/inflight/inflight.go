// Package inflight limits how many requests are handled at the same time.
//
// A request has a seat while the server works on it, but not while the server waits for the
// client: package body gives the seat back while it reads the body, and
// responserecorder.Recorder gives it back while it writes the response. The memory of responses
// that wait for their clients has a limit of its own, ResponseBudget.
package inflight

import (
	"net/http"
	"strconv"

	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// RetryAfter is the usual value of the header Retry-After, in seconds.
const RetryAfter = 1

// ResponseBudget is the memory for all responses that wait until their clients read them, in
// bytes. It is divided between users like seats.
const ResponseBudget = 128 << 20

// Limiter limits the requests that only read and, separately, those that may change something.
// Each limit is divided between users as package fairshare describes. Long-running requests
// and those of system:masters are not limited.
type Limiter struct{ readOnly, mutating, responses *fairshare.Pool }

// New returns a Limiter. 0 means no limit.
func New(readOnly, mutating int64) *Limiter {
	return &Limiter{readOnly: fairshare.NewPool(readOnly), mutating: fairshare.NewPool(mutating),
		responses: fairshare.NewPool(ResponseBudget)}
}

// Current returns how many requests that are not long-running are being handled.
func (l *Limiter) Current() (readOnly, mutating int64) { return l.readOnly.Taken(), l.mutating.Taken() }

// Filter returns the filter. It answers 429 above the limit. It also answers 429 to a request
// that may change something if the user's unread responses take all memory that the user may
// have: after the change is made, its response can no longer be refused.
func (l *Limiter) Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := request.InfoFrom(r.Context())
		if deadline.LongRunning(info) {
			rw := responserecorder.Wrap(w)
			info.Response = rw
			defer rw.CountMemory(l.responses.AccountFor(request.UserFrom(r.Context())))()
			next.ServeHTTP(rw, r)
			return
		}
		pool := l.mutating
		switch info.Verb {
		case "get", "list", "head", "options":
			pool = l.readOnly
		}
		rw := responserecorder.Wrap(w)
		account := pool.AccountFor(request.UserFrom(r.Context()))
		rw.Seat = &account
		defer rw.ReleaseSeat()
		info.Response = rw
		defer rw.CountMemory(account.InPool(l.responses))()
		if !account.Take(1) || pool == l.mutating && !rw.Memory.Take(0) {
			TooMany(rw, r, RetryAfter)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// TooMany responds 429 Too Many Requests with a Retry-After header in seconds.
func TooMany(w http.ResponseWriter, r *http.Request, seconds int) {
	request.TrackerFrom(r.Context()).Terminate()
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}
