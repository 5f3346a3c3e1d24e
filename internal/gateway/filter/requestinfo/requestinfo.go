// Package requestinfo is the filter that parses the path of a request, and puts the
// request.Info into its context.
package requestinfo

import (
	"fmt"
	"net/http"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
)

// New returns the filter. Handlers behind it can call request.InfoFrom, and request.Warn until the status is written.
func New() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rw := responserecorder.Wrap(w)
			info := request.ParseInfo(r)
			if info.Undetermined() {
				apiresponse.InternalServerError(rw, r,
					fmt.Errorf("failed to create RequestInfo: unable to determine kind and namespace from url, %v", r.URL))
				return
			}
			info.Tracker, info.Warnings = &rw.Tracker, &rw.Warnings
			info.AuditID, info.UserAgent = r.Header.Get("Audit-Id"), r.UserAgent()
			next.ServeHTTP(rw, r.WithContext(request.WithInfo(r.Context(), info)))
		})
	}
}
