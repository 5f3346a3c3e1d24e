// Package requestlog logs requests, where the verbosity asks for it.
package requestlog

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/filter/auditid"
	"github.com/keelson-dev/keelson/filter/measure"
	"github.com/keelson-dev/keelson/filter/response"
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
			rw := response.Of(w)
			// Filters behind this one change the headers.
			verb := measure.Verb(r, request.InfoFrom(r.Context()))
			agent, id := r.UserAgent(), r.Header.Get(auditid.Header)
			if len(id) > maxAuditID {
				id = id[:maxAuditID]
			}
			defer func() {
				log.Log(context.WithoutCancel(r.Context()), Level, "HTTP",
					"verb", verb, "URI", withoutSecrets(r.URL), "latency", time.Since(start),
					"userAgent", agent, "audit-ID", id, "srcIP", r.RemoteAddr, "resp", rw.Status)
			}()
			next.ServeHTTP(rw, r)
		})
	}
}

// secrets are parameters whose values are credentials.
var secrets = []string{"access_token", "token"}

// withoutSecrets returns a URI without credentials.
func withoutSecrets(u *url.URL) string {
	if !strings.Contains(u.RawQuery, "token") {
		return u.RequestURI()
	}
	values := u.Query()
	for _, name := range secrets {
		if values.Has(name) {
			values.Set(name, "REDACTED")
		}
	}
	out := *u
	out.RawQuery = values.Encode()
	return out.RequestURI()
}
