// Package body reads the bodies of requests before they are served, so that a client
// that sends slowly holds neither a seat (package inflight) nor much memory.
package body

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/keelson-dev/keelson/filter/deadline"
	"github.com/keelson-dev/keelson/filter/fairshare"
	"github.com/keelson-dev/keelson/filter/inflight"
	"github.com/keelson-dev/keelson/filter/responserecorder"
	"github.com/keelson-dev/keelson/filter/retryafter"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/scheme"
)

const (
	// Budget is how much of bodies that are not complete is kept, in bytes.
	Budget = 128 << 20
	// free is how much of each body does not count: its connection costs more.
	free = 8 << 10
	// growth is by how much the memory for a body grows when it is full.
	growth = 4
)

// New returns the filter. It comes when the request is authorized, so that nobody
// without permission makes it read, and it gives back the seat while it reads. A body
// that cannot be read is passed on with what was read of it; one above
// scheme.MaxBytes, with one byte more than that. What is above the budget is answered
// 429, and so is a body that is still being read when the server stops.
func New(budget *fairshare.Pool, stopping context.Context) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isRead(r) {
				next.ServeHTTP(w, r)
				return
			}
			rw := responserecorder.Wrap(w)
			rw.Seat.Leave()
			content, err := read(r, budget.Of(request.UserFrom(r.Context())))
			switch {
			case errors.Is(err, errBudget):
				inflight.TooMany(rw)
				return
			case stopping.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(r.Context().Err(), context.DeadlineExceeded):
				retryafter.Stopping(rw)
				return
			case !rw.Seat.TakeAgain():
				inflight.TooMany(rw)
				return
			}
			r.Body = request.NewBody(content, err)
			next.ServeHTTP(rw, r)
		})
	}
}

// isRead says whether the body of a request is one that its handler reads as a whole.
func isRead(r *http.Request) bool {
	if r.ContentLength == 0 || r.Body == nil || r.ContentLength > scheme.MaxBytes {
		return false // the last is refused by its length
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !deadline.LongRunning(request.InfoFrom(r.Context()))
}

// errBudget says that too much is being read at a time.
var errBudget = errors.New("too many bodies are being read")

// read reads a body. Memory is taken as it is needed, not as the request's length
// announces it, and counted until the body is complete.
func read(r *http.Request, account fairshare.Account) ([]byte, error) {
	defer account.Release()
	most := int64(scheme.MaxBytes) + 1
	if r.ContentLength > 0 {
		most = r.ContentLength + 1 // so that the end is seen without growing
	}
	b := make([]byte, 0, min(most, free))
	for {
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		case len(b) < cap(b):
			continue
		case int64(len(b)) >= most:
			return b, nil
		}
		size := min(most, int64(cap(b))*growth)
		if !account.Take(size - int64(cap(b))) {
			return nil, errBudget
		}
		b = append(make([]byte, 0, size), b...)
	}
}
