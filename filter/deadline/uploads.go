package deadline

import (
	"context"
	"io"
	"net/http"
	"sync"
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
}

// newUploads returns an empty list. Reading the bodies on it fails from grace after stopping
// is done.
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

// cut makes reading this body fail. The body must be on the list: then its request has not
// ended, and the connection is still the request's.
func (u *upload) cut() {
	// This fails only for the ResponseWriters of tests, which have no deadlines.
	_ = http.NewResponseController(u.w).SetReadDeadline(time.Now())
}
