// Package response has the one ResponseWriter that the filters put around the
// connection's own: it notes status and size, and lets headers be added in the
// last moment before the status is written.
package response

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/filter/share"
	"github.com/keelson-dev/keelson/request"
)

// Writer notes what is answered. It is made once a request and used by the
// goroutine that serves it.
type Writer struct {
	http.ResponseWriter
	// Warnings are sent with the headers.
	Warnings request.Warnings
	// Status is what was answered, 0 before the headers.
	Status int
	// Bytes of the body so far.
	Bytes int64
	// Seat is what the request has among those that are served at a time (package
	// inflight). It is given back while a client is waited for.
	Seat share.Account
	// Memory counts what the answer takes of memory until its client has read it.
	Memory share.Account
	// Started is called with the status before it is sent; nil is not.
	Started func(status int)
	// Copy receives what is written of the body; nil is not. It has no errors.
	Copy io.Writer
	// Wrote is told how long a write of the body took; nil is not.
	Wrote func(time.Duration)
}

// Of returns the Writer that w is, or a new one around it.
func Of(w http.ResponseWriter) *Writer {
	if rw, ok := w.(*Writer); ok {
		return rw
	}
	return &Writer{ResponseWriter: w}
}

// WriteHeader sends warnings and status. A second call does nothing.
func (w *Writer) WriteHeader(status int) {
	if w.Status != 0 {
		return
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // other 1xx may be followed by the real one
		w.started(status)
		w.Warnings.WriteHeaders(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *Writer) started(status int) {
	w.Status = status
	if w.Started != nil {
		w.Started(status)
	}
}

func (w *Writer) Write(b []byte) (int, error) {
	if w.Status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	var start time.Time
	if w.Wrote != nil {
		start = time.Now()
	}
	w.Seat.Leave()
	n, err := w.ResponseWriter.Write(b)
	w.Seat.Return()
	if w.Wrote != nil {
		w.Wrote(time.Since(start))
	}
	w.Bytes += int64(n)
	if w.Copy != nil {
		_, _ = w.Copy.Write(b[:n])
	}
	return n, err
}

// Hold implements apiresponse.Holder.
func (w *Writer) Hold(n int64) bool { return w.Memory.Take(n) }

// Charge implements apiresponse.Holder.
func (w *Writer) Charge(n int64) { w.Memory.Charge(n) }

// Hijack hands over the connection of a request that becomes another protocol.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.Status == 0 {
		w.started(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Flush sends what is buffered.
func (w *Writer) Flush() {
	if w.Status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		w.Seat.Leave()
		f.Flush()
		w.Seat.Return()
	}
}

// Unwrap is for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
