package deadline

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// uploads are the bodies that are being read.
type uploads struct {
	mu    sync.Mutex // guards what follows, and the links of each upload
	first *upload
	ended bool
}

// upload is the body of a request until it has been read.
type upload struct {
	io.ReadCloser
	w          http.ResponseWriter // of the connection
	all        *uploads
	next, prev *upload
	linked     bool
}

// newUploads returns a list whose bodies end grace after stopping.
func newUploads(stopping context.Context, grace time.Duration) *uploads {
	all := &uploads{}
	context.AfterFunc(stopping, func() { time.AfterFunc(grace, all.stop) })
	return all
}

// begin returns the body to read in the place of another one. Its end is called before
// the request ends.
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

// end takes the body off the list, once.
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

// stop ends the reading of all bodies.
func (all *uploads) stop() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.ended = true
	for u := all.first; u != nil; u = u.next {
		u.cut()
	}
}

// cut ends the reading of a body that is on the list, whose connection is therefore
// still that of its request.
func (u *upload) cut() {
	// A connection that has no deadlines is one of a test.
	_ = http.NewResponseController(u.w).SetReadDeadline(time.Now())
}
