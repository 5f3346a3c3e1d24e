package deadline

import (
	"context"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// uploads is the list of the request bodies that are being read.
type uploads struct {
	mu    sync.Mutex // guards what follows, and the links of each upload
	first *upload
	ended bool
}

// upload is the body of one request, on the list until it has been read to its end.
type upload struct {
	io.ReadCloser
	w          http.ResponseWriter // of the connection
	all        *uploads
	next, prev *upload
	linked     bool
	wasCut     bool

	reading sync.Mutex  // held while the body is read
	refuses atomic.Bool // the body is not read any more, because it was cut
}

// newUploads returns an empty list. When the time grace has passed after the end of stopping, reading the bodies
// on the list fails.
func newUploads(stopping context.Context, grace time.Duration) *uploads {
	all := &uploads{}
	context.AfterFunc(stopping, func() { time.AfterFunc(grace, all.stop) })
	return all
}

// begin adds body to the list and returns the reader to use instead of it. The caller must
// call end before the request ends.
func (all *uploads) begin(w http.ResponseWriter, body io.ReadCloser) *upload {
	u := &upload{ReadCloser: body, w: w, all: all, linked: true}
	all.mu.Lock()
	defer all.mu.Unlock()
	if u.next = all.first; u.next != nil {
		u.next.prev = u
	}
	all.first = u
	if all.ended {
		u.cut()
	}
	return u
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.refuses.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := u.ReadCloser.Read(p)
	if err != nil {
		u.end()
	}
	return n, err
}

// end removes the body from the list. Only the first call has an effect.
func (u *upload) end() {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	if !u.linked {
		return
	}
	u.linked = false
	if u.prev != nil {
		u.prev.next = u.next
	} else {
		u.all.first = u.next
	}
	if u.next != nil {
		u.next.prev = u.prev
	}
	u.next, u.prev = nil, nil
}

// stop makes reading fail, for all bodies on the list and all that are added later.
func (all *uploads) stop() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.ended = true
	for u := all.first; u != nil; u = u.next {
		u.cut()
	}
}

// cut makes reading this body fail. The body must be on the list: then its request has not ended, and the
// connection is still the request's. A body that was read to its end must not be cut: net/http then reads the
// connection of HTTP/1 itself, to notice that the client has gone. It would take the deadline for that, and would
// end all later requests of the connection.
func (u *upload) cut() {
	u.wasCut = true
	// This fails only for the ResponseWriters of tests, which have no deadlines.
	if http.NewResponseController(u.w).SetReadDeadline(time.Now()) == nil {
		u.refuses.Store(true)
	}
}

// waitForReader waits until nobody reads a body that was cut. If somebody still read it at the end of the request,
// net/http (HTTP/1) would interrupt the reader, remove the deadline, and then wait for the rest of the body
// itself, perhaps for ever.
func (u *upload) waitForReader() {
	if u.refuses.Load() {
		u.reading.Lock()
		defer u.reading.Unlock()
	}
}

// CutAt cuts the body as soon as ctx is done, unless it was read to its end. The caller must call
// the returned function before the request ends. Handlers may call it, too, for an earlier end.
func (u *upload) CutAt(ctx context.Context) (done func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		u.cutIfOpen()
	})
	return func() {
		defer u.waitForReader()
		if !stop() {
			<-ended
		} else if ctx.Err() != nil {
			// A context closes its channel before it starts its functions. In between the request may have been
			// answered 504, while its handler reads on: net/http would wait for that reader.
			u.cutIfOpen()
		}
	}
}

func (u *upload) cutIfOpen() {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	if u.linked {
		u.cut()
	}
}

// spoils reports whether the connection (HTTP/1) must not serve another request, because the body was cut or may
// still be cut. Then a part of the body may still arrive, or the deadline has hit the reading of net/http (see
// cut).
func (u *upload) spoils() bool {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	return u.linked || u.wasCut
}
