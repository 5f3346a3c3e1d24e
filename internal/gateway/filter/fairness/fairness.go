// Package fairness lets requests execute by API priority and fairness (see package flowcontrol). It replaces package
// inflight.
//
// As in package inflight, a request has its seats while the server works on it, but not while the server waits for the
// client, and the memory of responses that wait for their clients is limited.
package fairness

import (
	"context"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/gateway/filter/inflight"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// patience says for which part of its time a request may wait: 1/patience.
const patience = 4

// New returns the filter. It answers 429 to a request that is refused, or that has waited for a quarter of its time; the
// time of a request without a limit of its own is timeout. A watch has seats until its initial events are sent. Other
// long-running requests need none.
func New(c *flowcontrol.Controller, timeout time.Duration) func(http.Handler) http.Handler {
	f := &filter{controller: c, responses: fairshare.NewPool(inflight.ResponseBudget), longest: timeout / patience}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, next) })
	}
}

type filter struct {
	controller *flowcontrol.Controller
	responses  *fairshare.Pool // memory of responses that wait for their clients
	longest    time.Duration   // for which a request may wait
}

func (f *filter) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx := r.Context()
	info, user := request.InfoFrom(ctx), request.UserFrom(ctx)
	watch := info.IsResource() && info.Verb == "watch"
	if !watch && deadline.LongRunning(info) {
		next.ServeHTTP(w, r)
		return
	}
	ticket := f.controller.Begin(info, user, r.URL.RawQuery)
	ticket.SetHeaders(w.Header())
	rw := responserecorder.Wrap(w)
	if !ticket.Wait(ctx, f.limit(ctx)) {
		inflight.TooMany(rw, r, ticket.RetryAfter())
		return
	}
	rw.Seat = ticket
	defer ticket.Release()
	info.Response = rw
	defer rw.CountMemory(f.responses.AccountFor(user))()
	if watch {
		defer ticket.WatchBegins(r.URL.RawQuery)()
	} else if !readsOnly(info) && !rw.Memory.Take(0) {
		inflight.TooMany(rw, r, inflight.RetryAfter)
		return
	}
	next.ServeHTTP(rw, r)
}

// limit returns for how long a request may wait.
func (f *filter) limit(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(f.longest, time.Until(end)/patience)
	}
	return f.longest
}

func readsOnly(info *request.Info) bool {
	switch info.Verb {
	case "get", "list", "head", "options":
		return true
	}
	return false
}
