// Package requestmetrics is the filter that records the metrics of requests.
package requestmetrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/filter/deadline"
	"github.com/keelson-dev/keelson/filter/responserecorder"
	"github.com/keelson-dev/keelson/metrics"
	"github.com/keelson-dev/keelson/request"
)

// New returns the filter.
func New(m *metrics.Requests) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			rw := responserecorder.Wrap(w)
			info := request.InfoFrom(r.Context())
			labels := labelsOf(r, info)
			if deadline.LongRunning(info) {
				gauge := m.LongRunning(labels)
				gauge.Inc()
				defer gauge.Dec()
			}
			defer func() {
				status := rw.Status
				if status == 0 {
					status = http.StatusOK // what net/http sends for a handler that writes nothing
				}
				m.Done(labels, status, rw.Bytes, time.Since(start))
			}()
			next.ServeHTTP(rw, r)
		})
	}
}

// labelsOf returns the labels of a request. Package metrics replaces unknown values.
func labelsOf(r *http.Request, i *request.Info) metrics.Request {
	if !i.IsResource() {
		return metrics.Request{Verb: ReportedVerb(r, i), Path: i.Path}
	}
	out := metrics.Request{Group: i.Group, Version: i.Version, Resource: i.Resource, Subresource: i.Subresource}
	out.Verb = ReportedVerb(r, i)
	if i.Subresource == "log" && out.Verb == http.MethodGet {
		out.Verb = "CONNECT" // in the metrics alone, as in kube-apiserver
	}
	if strings.Contains(r.URL.RawQuery, "dryRun") {
		out.DryRun = r.URL.Query().Get("dryRun")
	}
	switch {
	case i.Name != "" || i.Verb == "create":
		out.Scope = "resource"
	case i.Namespace != "":
		out.Scope = "namespace"
	default:
		out.Scope = "cluster"
	}
	return out
}

// ReportedVerb returns the verb of a request in metrics and logs: LIST, WATCH,
// DELETECOLLECTION, APPLY or CONNECT, or else the HTTP method.
func ReportedVerb(r *http.Request, i *request.Info) string {
	switch {
	case !i.IsResource():
		return r.Method
	case i.Subresource == "exec", i.Subresource == "attach", i.Subresource == "portforward", i.Subresource == "proxy":
		return "CONNECT"
	case i.Verb == "list", i.Verb == "watch", i.Verb == "deletecollection":
		return strings.ToUpper(i.Verb)
	case i.Verb == "patch" && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		return "APPLY"
	}
	return r.Method
}
