// Package requestlog logs requests, where the verbosity asks for it.
package requestlog

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/keelson-dev/keelson/filter/auditid"
	"github.com/keelson-dev/keelson/filter/requestmetrics"
	"github.com/keelson-dev/keelson/filter/responserecorder"
	"github.com/keelson-dev/keelson/request"
)

// Level is that of --v=3.
const Level = slog.Level(-3)

// maxAuditID bounds what is logged of an Audit-Id, which a client may choose.
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
			// Filters behind this one change the headers.
			verb := requestmetrics.Verb(r, request.InfoFrom(r.Context()))
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
