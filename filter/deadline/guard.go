package deadline

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/filter/responserecorder"
)

// What became of a request, as the handler and its deadline agree on it.
const (
	open     int32 = iota // nothing is answered yet
	answered              // the handler answers
	finished              // the handler has returned
	cut                   // the time was up first
)

// guard lets a handler answer on a goroutine of its own, until the request's time is
// up: then what it writes goes nowhere. It has headers of its own, because those of
// the connection's ResponseWriter may be used when the handler still sets some.
type guard struct {
	responserecorder.Recorder // what the handler is given; its ResponseWriter is gate

	gate  gate
	done  chan struct{} // closed when the handler has returned
	cause any           // of its panic; set before done is closed
	o     *Options
	next  http.Handler
	r     *http.Request
}

// gate is the way from the handler to the connection.
type gate struct {
	state   atomic.Int32
	outer   http.ResponseWriter
	header  http.Header
	writing sync.Mutex // held while the handler uses outer
}

func newGuard(o *Options, outer http.ResponseWriter, r *http.Request, next http.Handler) *guard {
	g := &guard{done: make(chan struct{}), o: o, r: r, next: next}
	g.gate.outer, g.gate.header = outer, make(http.Header, headersAtMost)
	g.ResponseWriter = &g.gate
	return g
}

// headersAtMost is how many headers an ordinary answer has.
const headersAtMost = 8

// run serves the request. It is called on a goroutine that is not the connection's.
func (g *guard) run() {
	defer func() {
		g.cause = recover()
		was := g.gate.state.Swap(finished)
		close(g.done)
		if was == cut {
			g.o.Late(g.cause != nil && g.cause != http.ErrAbortHandler)
			g.o.Running.Add(-1)
		}
	}()
	g.next.ServeHTTP(&g.Recorder, g.r)
}

// end is called when the handler has returned: it is as if it had been called here.
func (g *guard) end() {
	if g.cause != nil {
		panic(g.cause)
	}
	if g.Status == 0 {
		g.gate.copyHeader() // net/http sends 200 with them
	}
}

// cutOff answers in the place of a handler that still runs, or ends what it has
// begun to answer: half an answer must not look like a whole one.
func (g *guard) cutOff() {
	if errors.Is(g.r.Context().Err(), context.Canceled) {
		// The request ends too when its body cannot be read any further: the handler is about to say so.
		g.wait()
	}
	for {
		was := g.gate.state.Load()
		if was == answered {
			// It may be about to end: handlers notice their deadline too, and say so.
			was = g.wait()
		}
		if was == finished {
			<-g.done
			g.end()
			return
		}
		g.o.Running.Add(1) // the handler goes on; run takes it away
		if !g.gate.state.CompareAndSwap(was, cut) {
			g.o.Running.Add(-1)
			continue
		}
		if was == open {
			apiresponse.TimeUp(g.gate.outer)
			return
		}
		// A client that does not read would hold up a write for ever. A connection
		// that has no deadlines is one of a test.
		_ = http.NewResponseController(g.gate.outer).SetWriteDeadline(time.Now())
		g.gate.writing.Lock() // outer is nobody's when this request ends
		defer g.gate.writing.Unlock()
		panic(http.ErrAbortHandler)
	}
}

// wait gives a handler that has begun to answer a moment to end.
func (g *guard) wait() int32 {
	timer := time.NewTimer(g.o.Grace)
	defer timer.Stop()
	select {
	case <-g.done:
		return finished
	case <-timer.C:
		return answered
	}
}

// Header implements http.ResponseWriter.
func (g *gate) Header() http.Header { return g.header }

func (g *gate) copyHeader() {
	to := g.outer.Header()
	for name, values := range g.header {
		to[name] = values
	}
}

// WriteHeader implements http.ResponseWriter.
func (g *gate) WriteHeader(status int) {
	if status < http.StatusOK {
		return // no handler with a deadline has use for such answers
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	if g.state.CompareAndSwap(open, answered) {
		g.copyHeader()
		g.outer.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter. It follows WriteHeader.
func (g *gate) Write(b []byte) (int, error) {
	g.writing.Lock()
	defer g.writing.Unlock()
	if g.state.Load() != answered {
		return 0, http.ErrHandlerTimeout
	}
	return g.outer.Write(b)
}

// Flush implements http.Flusher.
func (g *gate) Flush() {
	g.writing.Lock()
	defer g.writing.Unlock()
	if f, ok := g.outer.(http.Flusher); ok && g.state.Load() == answered {
		f.Flush()
	}
}

// bounded serves a request until ctx ends.
func (o *Options) bounded(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
	g := newGuard(o, w, r, next)
	o.workers.serve(g)
	select {
	case <-g.done:
		g.end()
	case <-ctx.Done():
		g.cutOff()
	}
}
