// Package requestmetrics is the filter that records the metrics of requests.
package requestmetrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// New returns the filter. As kube-apiserver does, it counts the requests that reached a handler for their verb (see
// request.Tracker) and the requests that were refused because there are too many. Requests that other filters refused,
// or that have no handler, have metrics of their own, such as authentication_attempts.
func New(m *Requests) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := call{
				metrics: m, r: r, info: request.InfoFrom(r.Context()), rw: responserecorder.Wrap(w), start: time.Now(),
			}
			c.labels = labelsOf(r, c.info)
			if c.info.IsResource() && deadline.LongRunning(c.info) {
				gauge := m.LongRunning(c.labels)
				gauge.Inc()
				defer gauge.Dec()
				if c.info.Verb == "watch" && isWatchList(r) {
					c.rw.InitialEvents = watchList(m, c.labels, c.start)
				}
			}
			defer c.end()
			next.ServeHTTP(c.rw, r)
		})
	}
}

// isWatchList reports whether a watch begins with the objects that exist and marks their end. Without the
// parameter sendInitialEvents a watch does so if it begins at no resource version or at 0.
func isWatchList(r *http.Request) bool {
	query := r.URL.Query()
	if bookmarks, err := strconv.ParseBool(query.Get("allowWatchBookmarks")); err != nil || !bookmarks {
		return false
	}
	if initial := query.Get("sendInitialEvents"); initial != "" {
		send, err := strconv.ParseBool(initial)
		return err == nil && send
	}
	version := query.Get("resourceVersion")
	return query.Get("resourceVersionMatch") == "" && (version == "" || version == "0")
}

// watchList returns the function that records that a watch has sent its initial events. It is separate from New so
// that the variable of type call does not escape to the heap in other requests.
func watchList(m *Requests, labels Request, start time.Time) func() {
	return func() { m.WatchList(labels, time.Since(start)) }
}

// call is one request.
type call struct {
	metrics *Requests
	r       *http.Request
	info    *request.Info
	rw      *responserecorder.Recorder
	labels  Request
	start   time.Time
}

// end records the request.
func (c *call) end() {
	took, tracker := time.Since(c.start), &c.rw.Tracker
	status := c.rw.Status
	if status == 0 {
		status = http.StatusOK // what net/http sends for a handler that writes nothing
	}
	if tracker.Special() {
		c.special(tracker, status)
	}
	served, deprecation := tracker.Served()
	if !served {
		return
	}
	c.metrics.Done(c.labels, Response{Code: status, Bytes: c.rw.Bytes, Took: took, Outside: tracker.Outside()})
	if deprecation != nil {
		c.metrics.Deprecated(c.labels, deprecation.Removed)
	}
	if verb := bodyVerb(c.info); verb != "" {
		c.metrics.Body(c.labels, verb, tracker.Body())
		if verb != "delete" && verb != "delete_collection" {
			c.metrics.FieldValidation(parameter(c.r, "fieldValidation"), took)
		}
	}
}

// special records the rare events of a request, such as a response that was cut off.
func (c *call) special(tracker *request.Tracker, status int) {
	if tracker.Aborted() {
		c.metrics.Aborted(c.labels)
	}
	if tracker.AggregatedTerminated() {
		labels := c.labels
		labels.Component = Aggregator
		c.metrics.Terminated(labels, status)
	}
	if !tracker.Terminated() {
		return
	}
	c.metrics.Terminated(c.labels, status)
	if served, _ := tracker.Served(); !served && status == http.StatusTooManyRequests {
		c.metrics.Dropped(c.labels, status)
	}
}

// bodyVerb returns the verb of a request in the metric of the sizes of bodies, "" if this metric does not count
// the request.
func bodyVerb(i *request.Info) string {
	if !i.IsResource() || deadline.LongRunning(i) {
		return ""
	}
	switch i.Verb {
	case "create", "update", "patch", "delete":
		return i.Verb
	case "deletecollection":
		return "delete_collection"
	}
	return ""
}

// labelsOf returns the labels of a request. Requests replaces unknown values.
func labelsOf(r *http.Request, i *request.Info) Request {
	if !i.IsResource() {
		return pathLabels(r, i)
	}
	out := Request{Group: i.Group, Version: i.Version, Resource: i.Resource, Subresource: i.Subresource}
	out.Verb = ReportedVerb(r, i)
	if i.Subresource == "log" && out.Verb == http.MethodGet {
		out.Verb = "CONNECT" // only in the metrics, as in kube-apiserver
	}
	out.DryRun = parameter(r, "dryRun")
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

// pathLabels returns the labels of a request that is not about a resource.
func pathLabels(r *http.Request, i *request.Info) Request {
	out := Request{Verb: r.Method, Path: i.Path, Component: NoComponent}
	switch {
	case i.Path == "/api" || i.Path == "/apis":
		out.Path, out.Component = i.Path[1:], APIServer
	case i.Path == "/openapi/v3":
		out.Path = "openapi/v3"
	case strings.HasPrefix(i.Path, "/openapi/v3/"):
		out.Path = "openapi/v3/"
	}
	return out
}

// parameter returns the first value of a parameter of the query, "" if there is none.
func parameter(r *http.Request, name string) string {
	if !strings.Contains(r.URL.RawQuery, name) {
		return ""
	}
	return r.URL.Query().Get(name)
}

// ReportedVerb returns the verb of a request in metrics and logs: LIST, WATCH, APPLY or CONNECT, or else the HTTP method.
// The deletion of a collection is a DELETE, as in kube-apiserver.
func ReportedVerb(r *http.Request, i *request.Info) string {
	switch {
	case !i.IsResource():
		return r.Method
	case i.Subresource == "exec", i.Subresource == "attach", i.Subresource == "portforward", i.Subresource == "proxy":
		return "CONNECT"
	case i.Verb == "list":
		return "LIST"
	case i.Verb == "watch":
		return "WATCH"
	case i.Verb == "patch" && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		return "APPLY"
	}
	return r.Method
}

// Timed returns the filters in the same order. Between them it adds filters that record the time from one filter
// to the next under the names in kube-apiserver. For a nil filter it only records the time. The time of a filter
// without a name is not recorded.
func Timed(q *Requests, filters []Named) []func(http.Handler) http.Handler {
	out := []func(http.Handler) http.Handler{mark(func(time.Duration) {})}
	for _, f := range filters {
		if f.Filter != nil {
			out = append(out, f.Filter)
		}
		observe := func(time.Duration) {}
		if f.Name != "" {
			observe = q.filterDuration(f.Name)
		}
		out = append(out, mark(observe))
	}
	return out
}

// Named is a filter and its name in metrics.
type Named struct {
	Name   string
	Filter func(http.Handler) http.Handler
}

// mark returns a filter that records the time since the previous mark.
func mark(observe func(time.Duration)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// All marks of a request use the same Recorder, which may differ from the Recorder of New.
			if rw, ok := w.(*responserecorder.Recorder); ok {
				observe(rw.Tracker.Pass())
			}
			next.ServeHTTP(w, r)
		})
	}
}
