// Package recovery is the filter that recovers from a panic in a handler: it answers 500 and
// logs the panic.
package recovery

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// New returns the filter. After a panic that comes later than the status, it aborts the
// connection (or the HTTP/2 stream), so that the client does not take a part of the response
// for the whole. It does not log the query, because the query may contain secrets.
func New(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rw := responserecorder.Wrap(w)
			defer func() {
				cause := recover()
				if cause == nil {
					return
				}
				if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					request.TrackerFrom(r.Context()).Abort()
					panic(cause)
				}
				log.Error("panic while serving a request", "method", r.Method, "path", r.URL.Path, "cause", fmt.Sprint(cause),
					"stack", string(debug.Stack()))
				if rw.Status != 0 {
					panic(http.ErrAbortHandler)
				}
				http.Error(rw, "This request caused apiserver to panic. Look in the logs for details.",
					http.StatusInternalServerError)
			}()
			next.ServeHTTP(rw, r)
		})
	}
}
