package requestmetrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/responserecorder"
)

// TestOnlyServedRequestsAreCounted sends requests that end in several ways, and reads the series with the values that are
// not 0.
func TestOnlyServedRequestsAreCounted(t *testing.T) {
	answer := func(record func(*request.Tracker), status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			record(request.TrackerFrom(r.Context()))
			w.WriteHeader(status)
		}
	}
	serve := func(tracker *request.Tracker) { tracker.Serve(nil) }
	const pods = "/api/v1/namespaces/a/pods"
	const labels = `group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"`
	for _, c := range []struct {
		name, method, path string
		handler            http.HandlerFunc
		want, not          []string
	}{
		{"a list", "GET", pods, answer(serve, 200), []string{
			`apiserver_request_total{code="200",component="apiserver",dry_run="",` + labels + `} 1`,
			`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",` + labels + `} 1`,
			`apiserver_request_sli_duration_seconds_count{component="apiserver",` + labels + `} 1`,
			`apiserver_response_sizes_count{component="apiserver",` + labels + `} 1`,
		}, []string{"terminations", "aborts", "body_size"}},
		{"refused by a filter", "GET", pods, answer(func(*request.Tracker) {}, 403), nil, []string{"pods"}},
		{"too many requests", "GET", pods, answer(func(t *request.Tracker) { t.Terminate() }, 429), []string{
			`apiserver_request_total{code="429",component="apiserver",dry_run="",` + labels + `} 1`,
			`apiserver_request_terminations_total{code="429",component="apiserver",` + labels + `} 1`,
		}, []string{`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",` + labels + `} 1`}},
		{"an unreachable extension server", "GET", "/apis/x.io/v1/foos", answer((*request.Tracker).TerminateAggregated, 503),
			[]string{`apiserver_request_terminations_total{code="503",component="aggregator",group="x.io",resource="",` +
				`scope="cluster",subresource="",verb="LIST",version="v1"} 1`}, []string{"apiserver_request_total{"}},
		{"a cut response", "GET", pods, answer((*request.Tracker).Abort, 200),
			[]string{`apiserver_request_aborts_total{` + labels + `} 1`}, []string{"apiserver_request_total{"}},
		{"a watch", "GET", pods + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true", func(w http.ResponseWriter, r *http.Request) {
			request.TrackerFrom(r.Context()).Serve(nil)
			w.(*responserecorder.Recorder).InitialEventsSent()
		}, []string{`apiserver_watch_list_duration_seconds_count{group="",resource="pods",scope="namespace",version="v1"} 1`},
			[]string{"apiserver_request_sli_duration_seconds"}},
		{"a deletion of a collection", "DELETE", pods, answer(serve, 200), []string{
			`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",` +
				`subresource="",verb="DELETE",version="v1"} 1`,
			`apiserver_request_body_size_bytes_count{group="",resource="pods",verb="delete_collection"} 1`,
		}, []string{"apiserver_response_sizes"}},
		{"a deprecated version", "POST", pods + "?dryRun=All&fieldValidation=Strict", answer(func(t *request.Tracker) {
			t.SetBody(60_000)
			t.Serve(&request.Deprecation{Removed: "1.40"})
		}, 201), []string{
			`dry_run="All",group="",resource="pods",scope="resource",subresource="",verb="POST"`,
			`apiserver_requested_deprecated_apis{group="",removed_release="1.40",resource="pods",subresource="",version="v1"} 1`,
			`apiserver_request_body_size_bytes_bucket{group="",resource="pods",verb="create",le="50000"} 0`,
			`apiserver_request_body_size_bytes_sum{group="",resource="pods",verb="create"} 60000`,
			`field_validation_request_duration_seconds_count{field_validation="Strict"} 1`,
		}, nil},
		{"a slow webhook", "POST", pods, answer(func(t *request.Tracker) {
			t.AddOutside(time.Hour)
			t.Serve(nil)
		}, 201), []string{`apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="pods",` +
			`scope="resource",subresource="",verb="POST",version="v1",le="0.05"} 1`}, nil},
		{"health", "GET", "/readyz", answer(serve, 200), []string{`apiserver_request_total{code="200",component="",dry_run="",` +
			`group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 1`}, nil},
		{"an OpenAPI document", "GET", "/openapi/v3/api/v1", answer(serve, 200), []string{`subresource="openapi/v3/"`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := scrape(t, c.method, c.path, c.handler)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("there is no %s in\n%s", want, text)
				}
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("there is %s in\n%s", not, text)
				}
			}
		})
	}
}

// scrape sends one request and returns the metrics of requests after it.
func scrape(t *testing.T, method, path string, h http.HandlerFunc) string {
	t.Helper()
	m := metrics.New(nil, metrics.Options{})
	filter := New(NewRequests(m, func(group, _, resource string) bool { return group == "" && resource == "pods" }))
	r := httptest.NewRequest(method, path, nil)
	rw := &responserecorder.Recorder{ResponseWriter: httptest.NewRecorder()}
	filter(h).ServeHTTP(rw, withInfo(r, rw))
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "apiserver_") || strings.HasPrefix(line, "field_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func withInfo(r *http.Request, rw *responserecorder.Recorder) *http.Request {
	info := request.ParseInfo(r)
	info.Tracker = &rw.Tracker
	return r.WithContext(request.WithInfo(r.Context(), info))
}

// BenchmarkFilter measures the metrics of a request.
func BenchmarkFilter(b *testing.B) {
	known := func(string, string, string) bool { return true }
	h := New(NewRequests(metrics.New(nil, metrics.Options{}), known))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request.TrackerFrom(r.Context()).Serve(nil)
		w.WriteHeader(http.StatusOK)
	}))
	for _, c := range []struct{ name, path string }{
		{"get", "/api/v1/namespaces/default/configmaps/c"},
		{"list", "/api/v1/namespaces/default/configmaps"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, c.path, nil)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				rw := &responserecorder.Recorder{ResponseWriter: discard{}}
				r := withInfo(r, rw)
				for p.Next() {
					rw.Status = 0
					h.ServeHTTP(rw, r)
				}
			})
		})
	}
}

type discard struct{}

func (discard) Header() http.Header         { return nil }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// BenchmarkTimed measures the timing of five filters that do nothing.
func BenchmarkTimed(b *testing.B) {
	m := metrics.New(nil, metrics.Options{})
	h := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	filters := Timed(NewRequests(m, func(string, string, string) bool { return false }), []Named{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}})
	for i := len(filters) - 1; i >= 0; i-- {
		h = filters[i](h)
	}
	rw := &responserecorder.Recorder{ResponseWriter: discard{}}
	r := withInfo(httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil), rw)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(rw, r)
	}
}
