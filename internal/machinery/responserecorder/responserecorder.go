// Package responserecorder has the one http.ResponseWriter that the filters put
// around the connection's own. It records the status and the size of the response,
// and adds the Warning headers just before the status is written.
package responserecorder

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Recorder records the response to one request. Only the goroutine that serves the request uses it.
type Recorder struct {
	http.ResponseWriter
	// Warnings are sent with the headers.
	Warnings request.Warnings
	// Status is the HTTP status of the response, 0 until the headers are written.
	Status int
	// Bytes counts the bytes of the body that were written so far.
	Bytes int64
	// Seat is counted in the limit of requests in flight (see internal/gateway/filter/inflight and
	// internal/gateway/filter/fairness); nil if the request has none. Write and Flush release it while they wait for
	// the client.
	Seat Seat
	// Memory counts the memory that is needed until the client has read the response. Kept counts the memory that
	// is needed until the request ends.
	Memory, Kept fairshare.Account
	// Allowed, unless nil, is asked just before the status and each part of the body are sent. If it returns false, the connection is cut
	// instead.
	Allowed func() bool
	// Started, unless nil, is called with the status just before it is sent.
	Started func(status int)
	// Copy, unless nil, receives a copy of the body. Its Write must not return errors.
	Copy io.Writer
	// Wrote, unless nil, is called with the time that each write of the body took.
	Wrote func(time.Duration)
	// InitialEvents, unless nil, is called when a watch has sent its initial events.
	InitialEvents func()
	// Tracker is the Tracker in the request.Info of the request.
	Tracker request.Tracker
}

// Seat is the right of a request to execute.
type Seat interface {
	// Pause gives the seat back until Resume.
	Pause()
	// Resume takes it again, in any case.
	Resume()
	// Read calls read, which waits for the client, and may give the seat back meanwhile. It
	// returns false if the request is refused after that.
	Read(read func()) bool
	// Release gives the seat back permanently. Only the first call has an effect.
	Release()
}

// ReleaseSeat gives the seat back permanently, if the request has one.
func (r *Recorder) ReleaseSeat() {
	if r.Seat != nil {
		r.Seat.Release()
		r.Seat = nil
	}
}

// InitialEventsSent implements request.Response: from then on a watch needs no seat, and no memory is counted.
func (r *Recorder) InitialEventsSent() {
	r.ReleaseSeat()
	r.Memory.Release()
	if r.InitialEvents != nil {
		r.InitialEvents()
	}
}

// Wrap returns w itself if it is a Recorder, or else a new Recorder around w.
func Wrap(w http.ResponseWriter) *Recorder {
	if rw, ok := w.(*Recorder); ok {
		return rw
	}
	return &Recorder{ResponseWriter: w}
}

// WriteHeader sends the warnings and the status. A second call does nothing.
func (r *Recorder) WriteHeader(status int) {
	if r.Status != 0 {
		return
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		// Another 1xx status is not final: the final one follows.
		r.started(status)
		r.Warnings.WriteHeaders(r.Header())
	}
	r.ResponseWriter.WriteHeader(status)
}

// Ask cuts the connection unless Allowed.
func (r *Recorder) Ask() {
	if r.Allowed != nil && !r.Allowed() {
		panic(http.ErrAbortHandler)
	}
}

func (r *Recorder) started(status int) {
	r.Ask()
	r.Status = status
	if r.Started != nil {
		r.Started(status)
	}
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(b []byte) (int, error) {
	if r.Status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.Ask()
	var start time.Time
	if r.Wrote != nil {
		start = time.Now()
	}
	if r.Seat != nil {
		r.Seat.Pause()
	}
	n, err := r.ResponseWriter.Write(b)
	if r.Seat != nil {
		r.Seat.Resume()
	}
	if r.Wrote != nil {
		r.Wrote(time.Since(start))
	}
	r.Bytes += int64(n)
	if r.Copy != nil {
		_, _ = r.Copy.Write(b[:n])
	}
	return n, err
}

// Hold implements request.Response.
func (r *Recorder) Hold(n int64) bool { return r.Memory.Take(n) }

// Charge implements request.Response.
func (r *Recorder) Charge(n int64) { r.Memory.Charge(n) }

// ReleaseMemory implements request.Response.
func (r *Recorder) ReleaseMemory() { r.Memory.Release() }

// CountMemory makes Memory and Kept copies of account, so that memory is counted from now on. end releases both.
func (r *Recorder) CountMemory(account fairshare.Account) (end func()) {
	r.Memory, r.Kept = account, account
	return func() {
		r.Memory.Release()
		r.Kept.Release()
	}
}

// Keep implements request.Response.
func (r *Recorder) Keep(n int64) bool { return r.Kept.Take(n) }

// Hijack implements http.Hijacker, for requests that are upgraded to another protocol.
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.Ask()
	conn, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.Status == 0 {
		r.started(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Flush implements http.Flusher.
func (r *Recorder) Flush() {
	if r.Status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		if r.Seat != nil {
			r.Seat.Pause()
			defer r.Seat.Resume()
		}
		f.Flush()
	}
}

// Unwrap returns the wrapped writer; http.ResponseController calls it.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
