// Package exclusive is the filter that answers requests only while no other server can have taken over the data of this one
// (--backup-exclusive). So an answer that a client gets was true when it was made.
package exclusive

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// exemptPaths are the prefixes of paths that are always answered: they are about the process and not about the data.
var exemptPaths = []string{"/readyz", "/livez", "/healthz", "/metrics", "/debug/", "/version"}

// New returns the filter; it is nil if valid is nil. valid reports whether no other server can have taken over. It is asked before a
// request is handled, and again just before its answer begins: if another server may have taken over meanwhile, the connection is cut, so
// that the client does not know whether the request had an effect, which nobody knows.
func New(valid func() bool) func(http.Handler) http.Handler {
	if valid == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if slices.ContainsFunc(exemptPaths, func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }) {
				next.ServeHTTP(w, r)
				return
			}
			if !valid() {
				w.Header().Set("Retry-After", "1")
				apiresponse.Error(w, r, apierr.New(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
					"this server has not renewed its lock in time, so another server may have taken over"))
				return
			}
			recorder := responserecorder.Wrap(w)
			recorder.Allowed = valid
			next.ServeHTTP(recorder, r)
			if recorder.Status == 0 {
				recorder.Ask() // net/http answers 200 now
			}
		})
	}
}
