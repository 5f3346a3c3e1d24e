package deadline

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// The states of a request. The handler and the deadline change the state atomically, so that
// only one of them answers.
const (
	open     int32 = iota // nothing has been answered
	answered              // the handler has begun to answer
	finished              // the handler has returned
	cut                   // the time was up before the handler was done
)

// guard lets a handler answer on a goroutine of its own until the time of the request is up. Later writes of the
// handler are discarded. The guard has its own headers, because the handler may still set headers while the
// connection's ResponseWriter is in use.
type guard struct {
	responserecorder.Recorder // the handler's ResponseWriter; it writes to gate

	gate  gate
	done  chan struct{} // closed when the handler has returned
	cause any           // the value of the handler's panic; set before done is closed
	o     *Options
	next  http.Handler
	r     *http.Request
}

// gate passes the handler's response on to the connection until the request is cut off.
type gate struct {
	state   atomic.Int32
	outer   http.ResponseWriter
	header  http.Header
	writing sync.Mutex // held while the handler uses outer
}

func newGuard(o *Options, outer http.ResponseWriter, r *http.Request, next http.Handler) *guard {
	g := &guard{done: make(chan struct{}), o: o, r: r, next: next}
	g.gate.outer, g.gate.header = outer, make(http.Header, ordinaryHeaders)
	g.ResponseWriter = &g.gate
	return g
}

// ordinaryHeaders is a number of headers that most responses do not exceed.
const ordinaryHeaders = 8

// run calls the handler. It runs on a goroutine of the package workers.
func (g *guard) run() {
	defer func() {
		g.cause = recover()
		was := g.gate.state.Swap(finished)
		close(g.done)
		if was == cut {
			g.o.Abandoned(g.cause != nil && g.cause != http.ErrAbortHandler)
			g.o.Running.Add(-1)
		}
	}()
	g.next.ServeHTTP(&g.Recorder, g.r)
}

// end is called on the connection's goroutine after the handler has returned. It repeats the
// handler's panic there, so that filters before this one see it.
func (g *guard) end() {
	if g.cause != nil {
		panic(g.cause)
	}
	if g.Status == 0 {
		g.gate.copyHeader() // net/http sends status 200 and these headers
	}
}

// cutOff is called when the time is up and the handler has not returned. It answers 504, or
// aborts the connection if the handler has already begun to answer: the client must not take a
// part of the response for the whole.
func (g *guard) cutOff() {
	if errors.Is(g.r.Context().Err(), context.Canceled) {
		// The context is also canceled when the body cannot be read any further. The handler then
		// is about to answer that.
		g.waitGrace()
	}
	for {
		was := g.gate.state.Load()
		if was == answered {
			// The handler may be about to return, because it sees the end of its context, too.
			was = g.waitGrace()
		}
		if was == finished {
			<-g.done
			g.end()
			return
		}
		g.o.Running.Add(1) // the handler still runs; run subtracts it again
		if !g.gate.state.CompareAndSwap(was, cut) {
			g.o.Running.Add(-1)
			continue
		}
		request.TrackerFrom(g.r.Context()).Terminate()
		if was == open {
			if u, ok := g.r.Body.(*upload); ok && g.r.ProtoMajor == 1 && u.spoils() {
				g.gate.outer.Header().Set("Connection", "close")
			}
			apiresponse.GatewayTimeout(g.gate.outer)
			return
		}
		// Without this deadline a client that does not read could block a write for ever. It fails
		// only for the ResponseWriters of tests, which have no deadlines.
		_ = http.NewResponseController(g.gate.outer).SetWriteDeadline(time.Now())
		g.gate.writing.Lock() // net/http must not get outer back while the handler writes to it
		defer g.gate.writing.Unlock()
		panic(http.ErrAbortHandler)
	}
}

// waitGrace waits until the handler has returned, at most o.Grace. It returns finished or
// answered.
func (g *guard) waitGrace() int32 {
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

// copyHeader copies the handler's headers to the connection's ResponseWriter.
func (g *gate) copyHeader() {
	to := g.outer.Header()
	for name, values := range g.header {
		to[name] = values
	}
}

// WriteHeader implements http.ResponseWriter.
func (g *gate) WriteHeader(status int) {
	if status < http.StatusOK {
		return // handlers that have a deadline do not need 1xx responses
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	if g.state.CompareAndSwap(open, answered) {
		g.copyHeader()
		g.outer.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter. The Recorder in front of it has called WriteHeader.
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

// SetWriteDeadline lets http.ResponseController set the deadline of the connection. It fails after the request was
// cut off, because cutOff has set a deadline then.
func (g *gate) SetWriteDeadline(t time.Time) error {
	if g.state.Load() == cut {
		return http.ErrHandlerTimeout
	}
	return http.NewResponseController(g.outer).SetWriteDeadline(t)
}

// serveWithDeadline calls next on another goroutine and returns when it is done, or soon after
// ctx has ended.
func (o *Options) serveWithDeadline(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
	g := newGuard(o, w, r, next)
	o.workers.serve(g)
	select {
	case <-g.done:
		g.end()
	case <-ctx.Done():
		g.cutOff()
	}
}
