// Package body is the filter that reads the body of a request before the request is
// handled, so that a client that sends slowly takes neither a seat (see package inflight) nor
// much memory.
package body

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/gateway/filter/inflight"
	"github.com/keelson-dev/keelson/internal/gateway/filter/retryafter"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

const (
	// Budget is the memory for all bodies that are not yet complete, in bytes.
	Budget = 128 << 20
	// freeBytes is the part of each body that is not counted against the budget, in bytes. A
	// connection takes more memory than that anyway.
	freeBytes = 8 << 10
	// growthFactor is the factor by which a full buffer grows.
	growthFactor = 4
)

// New returns the filter. It comes after authorization, so that only authorized clients can
// make the server read bodies, and it gives back the seat while it reads. If a body cannot be
// read to its end, the handler gets the part that was read and the error. If a body is larger than
// scheme.MaxBytes, the handler gets one byte more than that, which is enough to refuse it. A
// request is answered 429 if the budget is used up, or if its body is still incomplete when
// the server stops.
func New(budget *fairshare.Pool, stopping context.Context) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isBuffered(r) {
				next.ServeHTTP(w, r)
				return
			}
			rw := responserecorder.Wrap(w)
			var content []byte
			var err error
			readBody := func() { content, err = read(r, budget.AccountFor(request.UserFrom(r.Context()))) }
			admitted := true
			if rw.Seat != nil {
				admitted = rw.Seat.Read(readBody)
			} else {
				readBody()
			}
			switch {
			case errors.Is(err, errBudget):
				inflight.TooMany(rw, r, inflight.RetryAfter)
				return
			case stopping.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) &&
				!errors.Is(r.Context().Err(), context.DeadlineExceeded):
				retryafter.RefuseStopping(rw)
				return
			case !admitted:
				inflight.TooMany(rw, r, inflight.RetryAfter)
				return
			}
			info := request.InfoFrom(r.Context())
			info.Tracker.SetBody(int64(len(content)))
			info.Body = request.NewBody(content, err)
			r.Body = info.Body
			next.ServeHTTP(rw, r)
		})
	}
}

// isBuffered reports whether the filter reads the body of the request.
func isBuffered(r *http.Request) bool {
	if r.ContentLength == 0 || r.Body == nil || r.ContentLength > scheme.MaxBytes {
		return false // a body that is too large is refused because of its Content-Length
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !deadline.LongRunning(request.InfoFrom(r.Context()))
}

// errBudget means that the budget for incomplete bodies is used up.
var errBudget = errors.New("too many bodies are being read")

// read reads a body. The buffer grows with what was received, not with what Content-Length
// announces, and is counted against account until read returns.
func read(r *http.Request, account fairshare.Account) ([]byte, error) {
	defer account.Release()
	most := int64(scheme.MaxBytes) + 1
	if r.ContentLength > 0 {
		most = r.ContentLength + 1 // one more, so that the end is read without growing the buffer
	}
	b := make([]byte, 0, min(most, freeBytes))
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
		size := min(most, int64(cap(b))*growthFactor)
		if !account.Take(size - int64(cap(b))) {
			return nil, errBudget
		}
		b = append(make([]byte, 0, size), b...)
	}
}
