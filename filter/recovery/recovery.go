// Package recovery turns a panic in a handler into a 500 and a log line.
package recovery

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/keelson-dev/keelson/filter/responserecorder"
)

// New returns the filter. A panic after the status was written ends the
// connection (or the HTTP/2 stream), so that the client does not take half an
// answer for a whole one. The query is not logged: it may hold secrets.
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
					panic(cause)
				}
				log.Error("panic while serving a request", "method", r.Method, "path", r.URL.Path, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
				if rw.Status != 0 {
					panic(http.ErrAbortHandler)
				}
				http.Error(rw, "This request caused apiserver to panic. Look in the logs for details.", http.StatusInternalServerError)
			}()
			next.ServeHTTP(rw, r)
		})
	}
}
