// Package deadline bounds how long a request may take, and ends long-running
// ones when the server stops.
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

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/request"
)

// Options are what the filter needs.
type Options struct {
	// Limit is how long a request may take that is not long-running.
	Limit time.Duration
	// Grace is how much longer a handler may take that has begun to answer.
	Grace time.Duration
	// Spread is the time over which long-running requests end when Stopping has ended,
	// so that their clients do not all come back to other servers at once.
	Spread time.Duration
	// Stopping ends long-running requests, and BodyGrace later bodies that are still
	// being read.
	Stopping  context.Context
	BodyGrace time.Duration
	// Running counts handlers that go on after their request was cut off.
	Running *atomic.Int64
	// Late is told of the end of each of those, and whether it panicked.
	Late func(panicked bool)

	workers *workers
	uploads *uploads
}

// New returns the filter. A request may ask for a shorter time than the limit with
// the parameter timeout. When it is up, or the client is gone, the request's context
// ends, and so does reading a body that does not come; whatever error comes of that
// is answered 504 (package apiresponse), and the request ends even if its handler does
// not. That is why the handler has a goroutine of its own, unless it only reads
// objects. A long-running request has no deadline here; its context ends when stopping
// does.
func New(o Options) func(http.Handler) http.Handler {
	o.workers, o.uploads = newWorkers(o.Stopping), newUploads(o.Stopping, o.BodyGrace)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if LongRunning(request.InfoFrom(r.Context())) {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				defer o.endWith(cancel)()
				next.ServeHTTP(w, r.WithContext(ctx))
				return
			}
			timeout, err := parse(r, o.Limit)
			if err != nil {
				apiresponse.Error(w, r, kerrors.NewBadRequest("invalid timeout specified in the request URL - "+err.Error()))
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), timeout)
			defer cancel()
			inner := r.WithContext(ctx)
			if r.ContentLength != 0 {
				defer boundReading(ctx, w)()
				u := o.uploads.begin(w, r.Body)
				defer u.end()
				inner.Body = u
			}
			if reads(request.InfoFrom(ctx)) {
				defer boundWriting(ctx, w, o.Grace)()
				next.ServeHTTP(w, inner)
				return
			}
			// Filters remove headers, and net/http reads them to answer for a handler.
			inner.Header = maps.Clone(r.Header)
			o.bounded(ctx, w, inner, next)
		})
	}
}

// reads says whether a request only reads objects: nothing that such a handler waits
// for goes on when its context has ended, so that it can do without the goroutine.
func reads(i *request.Info) bool {
	return i.IsResource() && i.Subresource == "" && (i.Verb == "get" || i.Verb == "list")
}

// endWith calls end when the server stops, or some time later if that is to be
// spread. The returned function takes that back.
func (o *Options) endWith(end func()) func() bool {
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

// boundReading ends the reading of a body with ctx. The returned function is called
// when the request is done, after which w is used no more.
func boundReading(ctx context.Context, w http.ResponseWriter) (done func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		// A connection that has no deadlines is one of a test.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// LongRunning says whether a request lives as long as its client likes.
func LongRunning(i *request.Info) bool {
	if !i.IsResource() {
		return strings.HasPrefix(i.Path, "/debug/pprof/") || strings.HasPrefix(i.Path, "/debug/keelson/")
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

// boundWriting ends an answer that its client does not take, grace after ctx. The
// returned function is called when the request is done.
func boundWriting(ctx context.Context, w http.ResponseWriter, grace time.Duration) (done func()) {
	ended := make(chan struct{})
	// A connection that has no deadlines is one of a test.
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(grace))
	})
	return func() {
		if !stop() {
			<-ended
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the connection may go on
		}
	}
}

func parse(r *http.Request, limit time.Duration) (time.Duration, error) {
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
