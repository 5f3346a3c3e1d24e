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
	// Memory counts the memory that the response takes until the client has read it, Kept what the request takes until it ends.
	Memory, Kept fairshare.Account
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
func (w *Recorder) ReleaseSeat() {
	if w.Seat != nil {
		w.Seat.Release()
		w.Seat = nil
	}
}

// InitialEventsSent implements request.Response: from then on a watch needs no seat, and no memory is counted.
func (w *Recorder) InitialEventsSent() {
	w.ReleaseSeat()
	w.Memory.Release()
	if w.InitialEvents != nil {
		w.InitialEvents()
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
func (w *Recorder) WriteHeader(status int) {
	if w.Status != 0 {
		return
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		// Another 1xx status is not final: the final one follows.
		w.started(status)
		w.Warnings.WriteHeaders(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *Recorder) started(status int) {
	w.Status = status
	if w.Started != nil {
		w.Started(status)
	}
}

// Write implements http.ResponseWriter.
func (w *Recorder) Write(b []byte) (int, error) {
	if w.Status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	var start time.Time
	if w.Wrote != nil {
		start = time.Now()
	}
	if w.Seat != nil {
		w.Seat.Pause()
	}
	n, err := w.ResponseWriter.Write(b)
	if w.Seat != nil {
		w.Seat.Resume()
	}
	if w.Wrote != nil {
		w.Wrote(time.Since(start))
	}
	w.Bytes += int64(n)
	if w.Copy != nil {
		_, _ = w.Copy.Write(b[:n])
	}
	return n, err
}

// Hold implements request.Response.
func (w *Recorder) Hold(n int64) bool { return w.Memory.Take(n) }

// Charge implements request.Response.
func (w *Recorder) Charge(n int64) { w.Memory.Charge(n) }

// ReleaseMemory implements request.Response.
func (w *Recorder) ReleaseMemory() { w.Memory.Release() }

// CountMemory counts memory for an account from now on. Its result ends the count.
func (w *Recorder) CountMemory(account fairshare.Account) (end func()) {
	w.Memory, w.Kept = account, account
	return func() {
		w.Memory.Release()
		w.Kept.Release()
	}
}

// Keep implements request.Response.
func (w *Recorder) Keep(n int64) bool { return w.Kept.Take(n) }

// Hijack implements http.Hijacker, for requests that are upgraded to another protocol.
func (w *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.Status == 0 {
		w.started(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Flush implements http.Flusher.
func (w *Recorder) Flush() {
	if w.Status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		if w.Seat != nil {
			w.Seat.Pause()
			defer w.Seat.Resume()
		}
		f.Flush()
	}
}

// Unwrap returns the wrapped writer; http.ResponseController calls it.
func (w *Recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
