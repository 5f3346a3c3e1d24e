// Package requestlog is the filter that logs each request at a high verbosity.
package requestlog

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/filter/auditid"
	"github.com/keelson-dev/keelson/internal/gateway/filter/requestmetrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// Level is the log level of --v=3. Requests are logged if the log is enabled for this level.
const Level = slog.Level(-3)

// maxAuditID limits the bytes of an Audit-Id that are logged. A client may send a long one.
const maxAuditID = 64

// New returns the filter.
func New(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !log.Enabled(r.Context(), Level) {
				next.ServeHTTP(w, r)
				return
			}
			start := time.Now()
			rw := responserecorder.Wrap(w)
			// These are read now, because later filters change the headers.
			verb := requestmetrics.ReportedVerb(r, request.InfoFrom(r.Context()))
			agent, id := r.UserAgent(), r.Header.Get(auditid.Header)
			if len(id) > maxAuditID {
				id = id[:maxAuditID]
			}
			defer func() {
				log.Log(context.WithoutCancel(r.Context()), Level, "HTTP",
					"verb", verb, "URI", request.RedactedURI(r.URL), "latency", time.Since(start),
					"userAgent", agent, "audit-ID", id, "srcIP", r.RemoteAddr, "resp", rw.Status)
			}()
			next.ServeHTTP(rw, r)
		})
	}
}
