// Package deadline limits how long a request may take, and ends long-running requests when
// the server stops.
package deadline

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// Options are the dependencies of the filter.
type Options struct {
	// Limit is the longest time for a request that is not long-running.
	Limit time.Duration
	// Grace is the additional time for a handler whose response has begun.
	Grace time.Duration
	// Spread is the time over which long-running requests are ended after Stopping is
	// done, so that not all their clients reconnect to other servers at once.
	Spread time.Duration
	// Stopping is done when the server stops. That ends long-running requests and,
	// BodyGrace later, the reading of request bodies.
	Stopping  context.Context
	BodyGrace time.Duration
	// Forwarder returns the handler that forwards the request to another server, or nil if this server handles it.
	// If a forwarded request upgrades its connection to another protocol, it has no deadline. A nil Forwarder
	// forwards nothing.
	Forwarder func(*http.Request) http.Handler
	// Running is the number of abandoned handlers: those that still run although their
	// request was answered 504 or aborted.
	Running *atomic.Int64
	// LongRunning, unless nil, is called when a long-running request begins; its result is called when the request
	// ends.
	LongRunning func() (ended func())
	// Abandoned is called when an abandoned handler (see Running) returns.
	Abandoned func(panicked bool)

	workers *workers
	uploads *uploads
}

// New returns the filter. A client can ask for a shorter time than the limit with the
// parameter timeout. When the time is up, or the client has gone away, the context of the
// request ends, and reading the body fails. Any error that follows from that is answered 504
// (see package apiresponse).
//
// A handler of a get or a list returns soon after its context has ended (see readsObjects). Any
// other handler runs on a goroutine of its own, so that the request ends in time even if the
// handler does not return.
//
// A long-running request has no deadline. Its context ends when the server stops, and soon
// after that writing fails, so that a client that does not read cannot delay the stop.
func New(o Options) func(http.Handler) http.Handler {
	o.workers, o.uploads = newWorkers(o.Stopping), newUploads(o.Stopping, o.BodyGrace)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if LongRunning(request.InfoFrom(r.Context())) ||
				o.Forwarder != nil && proxy.IsUpgrade(r) && o.Forwarder(r) != nil {
				if o.LongRunning != nil {
					defer o.LongRunning()()
				}
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				defer o.endWhenStopping(cancel)()
				defer stopWritingAt(ctx, w, o.Grace)()
				next.ServeHTTP(w, r.WithContext(ctx))
				return
			}
			timeout, err := parseTimeout(r, o.Limit)
			if err != nil {
				apiresponse.Error(w, r, kerrors.NewBadRequest("invalid timeout specified in the request URL - "+err.Error()))
				return
			}
			if r.ProtoMajor == 1 && r.Context().Err() != nil {
				// The client has gone, or reading the connection has failed: the connection serves no other
				// request.
				w.Header().Set("Connection", "close")
			}
			ctx, cancel := context.WithTimeout(r.Context(), timeout)
			defer cancel()
			inner := r.WithContext(ctx)
			if r.ContentLength != 0 {
				u := o.uploads.begin(w, r.Body)
				defer u.end()
				defer u.CutAt(ctx)()
				inner.Body = u
			}
			if readsObjects(request.InfoFrom(ctx)) {
				defer stopWritingAt(ctx, w, o.Grace)()
				next.ServeHTTP(w, inner)
				return
			}
			// The filters that follow delete headers, while net/http may read the original ones.
			inner.Header = maps.Clone(r.Header)
			o.serveWithDeadline(ctx, w, inner, next)
		})
	}
}

// readsObjects reports whether a request is a get or a list of objects. Such a handler returns
// soon after its context has ended, because everything that it waits for ends with the
// context. So it needs no goroutine of its own.
func readsObjects(i *request.Info) bool {
	return i.IsResource() && i.Subresource == "" && (i.Verb == "get" || i.Verb == "list")
}

// endWhenStopping calls end when the server stops, at a random moment within o.Spread. The
// returned function cancels that.
func (o *Options) endWhenStopping(end func()) func() bool {
	if o.Spread <= 0 {
		return context.AfterFunc(o.Stopping, end)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(o.Stopping, func() {
		timer := time.NewTimer(rand.N(o.Spread))
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-ctx.Done():
		}
	})
	return func() bool {
		cancel()
		return stop()
	}
}

// LongRunning reports whether a request may last as long as its client wants, such as a watch.
func LongRunning(i *request.Info) bool {
	if !i.IsResource() {
		return strings.HasPrefix(i.Path, "/debug/pprof/") || strings.HasPrefix(i.Path, "/keelson/")
	}
	if i.Verb == "watch" {
		return true
	}
	switch i.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}

// stopWritingAt makes writing to the connection fail when the time grace has passed after the end of ctx. It is
// for a client that does not read the response. The caller must call the returned function before the request
// ends.
func stopWritingAt(ctx context.Context, w http.ResponseWriter, grace time.Duration) (done func()) {
	ended := make(chan struct{})
	// SetWriteDeadline fails only for the ResponseWriters of tests, which have no deadlines.
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(grace))
	})
	return func() {
		if !stop() {
			<-ended
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the connection may serve other requests
		}
	}
}

// parseTimeout returns the time for a request: the parameter timeout, but at most limit.
func parseTimeout(r *http.Request, limit time.Duration) (time.Duration, error) {
	if !strings.Contains(r.URL.RawQuery, "timeout") {
		return limit, nil
	}
	value := r.URL.Query().Get("timeout")
	if value == "" {
		return limit, nil
	}
	asked, err := time.ParseDuration(value)
	if err != nil {
		return 0, err
	}
	if asked <= 0 || asked > limit {
		return limit, nil
	}
	return asked, nil
}
