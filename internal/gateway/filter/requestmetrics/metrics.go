package requestmetrics

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Requests has the metrics of requests.
type Requests struct {
	total        *prometheus.CounterVec
	duration     *metrics.HistogramVec
	slis         *metrics.HistogramVec
	sizes        *metrics.HistogramVec
	bodies       *metrics.HistogramVec
	watchLists   *metrics.HistogramVec
	longRunning  *prometheus.GaugeVec
	terminations *prometheus.CounterVec
	aborts       *prometheus.CounterVec
	deprecated   *prometheus.GaugeVec
	validation   map[string]*metrics.Histogram // by the value of the parameter fieldValidation
	filters      *metrics.HistogramVec

	// known reports whether a resource (or resource/subresource) is served. Others are counted
	// together.
	known func(group, version, resource string) bool

	mu       sync.RWMutex // guards seriesOf
	seriesOf map[knownRequest]*series
}

// The buckets of durations in seconds.
var (
	sliBuckets    = metrics.DurationBuckets()[2:]
	filterBuckets = []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 15, 30}
	listBuckets   = []float64{
		0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300,
	}
)

// The buckets of sizes in bytes.
var (
	sizeBuckets = prometheus.ExponentialBuckets(1000, 10, 7)
	bodyBuckets = prometheus.LinearBuckets(50_000, 100_000, 31)
)

// NewRequests returns the metrics of requests. known reports whether a resource (or
// resource/subresource) is served: the names of others do not become labels.
func NewRequests(m *metrics.Metrics, known func(group, version, resource string) bool) *Requests {
	q := &Requests{known: known, seriesOf: map[knownRequest]*series{}, validation: map[string]*metrics.Histogram{}}
	withoutComponent := []string{"verb", "group", "version", "resource", "subresource", "scope"}
	withoutDryRun := append(slices.Clone(withoutComponent), "component")
	labels := append(slices.Clone(withoutDryRun), "dry_run")
	q.total = m.Counters("apiserver_request_total",
		"[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, "+
			"scope, component, and HTTP response code.", append(slices.Clone(labels), "code")...)
	q.duration = m.Durations("apiserver_request_duration_seconds",
		"[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, "+
			"subresource, scope and component.", metrics.DurationBuckets(), labels...)
	q.slis = m.Durations("apiserver_request_sli_duration_seconds", "[ALPHA] Response latency distribution (not "+
		"counting webhook duration and priority & fairness queue wait times) in seconds for each verb, group, "+
		"version, resource, subresource, scope and component.", sliBuckets, withoutDryRun...)
	q.sizes = m.Sizes("apiserver_response_sizes", "[STABLE] Response size distribution in bytes for each group, "+
		"version, verb, resource, subresource, scope and component.", sizeBuckets, withoutDryRun...)
	q.bodies = m.Sizes("apiserver_request_body_size_bytes", "[ALPHA] Apiserver request body size in bytes broken out "+
		"by resource and verb.", bodyBuckets, "resource", "verb", "group")
	q.watchLists = m.Durations("apiserver_watch_list_duration_seconds",
		"[BETA] Response latency distribution in seconds for watch list requests broken by group, version, resource "+
			"and scope.", listBuckets, "group", "version", "resource", "scope")
	q.longRunning = m.Gauges("apiserver_longrunning_requests",
		"[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, "+
			"scope and component. Not all requests are tracked this way.", withoutDryRun...)
	q.terminations = m.Counters("apiserver_request_terminations_total", "[ALPHA] Number of requests which apiserver "+
		"terminated in self-defense.", append(slices.Clone(withoutDryRun), "code")...)
	q.aborts = m.Counters("apiserver_request_aborts_total",
		"[ALPHA] Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, "+
			"resource, subresource and scope", withoutComponent...)
	q.deprecated = m.Gauges("apiserver_requested_deprecated_apis",
		"[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, "+
			"subresource, and removed_release.", "group", "version", "resource", "subresource", "removed_release")
	validation := m.Durations("field_validation_request_duration_seconds", "[ALPHA] Response latency distribution in "+
		"seconds for each field validation value", sliBuckets, "field_validation")
	for _, value := range []string{"", "Ignore", "Strict", "Warn", invalid} {
		q.validation[value] = validation.With(value)
	}
	q.filters = m.Durations("apiserver_request_filter_duration_seconds",
		"[ALPHA] Request filter latency distribution in seconds, for each filter type", filterBuckets, "filter")
	return q
}

// Request describes a request. Its values may be anything that a client sends; they become
// labels only after the method bounded has replaced unknown ones.
type Request struct {
	// Verb is the HTTP method, or LIST, WATCH, APPLY or CONNECT.
	Verb                                  string
	Group, Version, Resource, Subresource string
	// Path is the path of a non-resource request.
	Path string
	// Scope is cluster, namespace, resource or empty.
	Scope  string
	DryRun string
	// Component is the part of the server that handles the request.
	Component Component
}

// Component is the value of the label component.
type Component uint8

// The components. NoComponent is for health checks and documents.
const (
	APIServer Component = iota
	Aggregator
	NoComponent
)

func (c Component) label() string {
	switch c {
	case Aggregator:
		return "aggregator"
	case NoComponent:
		return ""
	}
	return "apiserver"
}

// knownRequest is a Request with bounded values, which can be used as labels. Only the methods bounded and sent make one:
// it has few strings because it is the key of a map that every request is looked up in.
type knownRequest struct {
	verb, scope, dryRun                   uint8 // indexes of verbs, scopes and dryRuns
	component                             Component
	group, version, resource, subresource string
}

var (
	verbs = []string{
		"other", "GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "APPLY", "DELETE", "HEAD", "OPTIONS", "CONNECT",
	}
	scopes  = []string{"", "cluster", "namespace", "resource"}
	dryRuns = []string{"", "All", invalid}
)

// invalid is the label of values that the API does not have.
const invalid = "invalid"

// labels returns the values of the labels that most metrics of requests have, and dry_run.
func (r *knownRequest) labels() []string {
	return []string{
		verbs[r.verb], r.group, r.version, r.resource, r.subresource, scopes[r.scope], r.component.label(), dryRuns[r.dryRun],
	}
}

// series has the metrics of one knownRequest.
type series struct {
	duration    *metrics.Histogram
	slis, sizes *metrics.Histogram                 // nil if that is not measured
	ok          atomic.Pointer[prometheus.Counter] // of code 200
	byCode      sync.Map                           // int -> prometheus.Counter, of other codes
	longRunning prometheus.Gauge
	body        atomic.Pointer[metrics.Histogram]
	watchList   atomic.Pointer[metrics.Histogram]
	deprecated  atomic.Bool // whether the metric of deprecated versions was set
}

// Response describes the response to a request.
type Response struct {
	Code  int
	Bytes int64
	Took  time.Duration
	// Outside is the part of Took that was spent waiting for webhooks and in queues.
	Outside time.Duration
}

// Done counts a request that has been answered.
func (re *Requests) Done(r Request, response Response) {
	s := re.series(&r)
	re.counter(s, &r, response.Code).Inc()
	s.duration.Observe(int64(response.Took))
	if s.slis != nil {
		s.slis.Observe(int64(response.Took - response.Outside))
	}
	if s.sizes != nil {
		s.sizes.Observe(response.Bytes)
	}
}

// counter returns the counter of the requests like r that were answered with a code.
func (re *Requests) counter(s *series, r *Request, code int) prometheus.Counter {
	const okCode = 200
	if ok := s.ok.Load(); ok != nil && code == okCode {
		return *ok
	}
	code = boundedCode(code)
	counter, found := s.byCode.Load(code)
	if !found {
		known := re.bounded(r)
		made := re.total.WithLabelValues(append(known.labels(), strconv.Itoa(code))...)
		if code == okCode {
			s.ok.Store(&made)
			return made
		}
		counter, _ = s.byCode.LoadOrStore(code, made)
	}
	return counter.(prometheus.Counter)
}

// Dropped counts a request that was refused because there are too many. Done is not called for such a request.
func (re *Requests) Dropped(r Request, code int) { re.counter(re.series(&r), &r, code).Inc() }

// Terminated counts a request that the server ended to protect itself.
func (re *Requests) Terminated(r Request, code int) {
	known := re.bounded(&r)
	labels := known.labels()
	re.terminations.WithLabelValues(append(labels[:len(labels)-1], strconv.Itoa(boundedCode(code)))...).Inc()
}

// Aborted counts a request whose response was cut off.
func (re *Requests) Aborted(r Request) {
	known := re.bounded(&r)
	labels := known.labels()
	re.aborts.WithLabelValues(labels[:len(labels)-2]...).Inc()
}

// Deprecated records a request for a deprecated version of a resource.
func (re *Requests) Deprecated(r Request, removed string) {
	s := re.series(&r)
	if s.deprecated.Swap(true) {
		return
	}
	known := re.bounded(&r)
	re.deprecated.WithLabelValues(known.group, known.version, known.resource, known.subresource, removed).Set(1)
}

// Body records the size in bytes of the body of a write. verb is create, update, patch, delete or delete_collection.
func (re *Requests) Body(r Request, verb string, bytes int64) {
	s := re.series(&r)
	h := s.body.Load()
	if h == nil {
		known := re.bounded(&r)
		h = re.shared(re.bodies, &s.body, known.resource, verb, known.group)
	}
	h.Observe(bytes)
}

// WatchList records the time until a watch had sent its initial events.
func (re *Requests) WatchList(r Request, took time.Duration) {
	s := re.series(&r)
	h := s.watchList.Load()
	if h == nil {
		known := re.bounded(&r)
		h = re.shared(re.watchLists, &s.watchList, known.group, known.version, known.resource, scopes[known.scope])
	}
	h.Observe(int64(took))
}

// shared returns the series of v for the values, and stores it in place. Requests with different values of other labels
// share the series.
func (re *Requests) shared(v *metrics.HistogramVec, place *atomic.Pointer[metrics.Histogram], values ...string) *metrics.Histogram {
	h := v.With(values...)
	place.Store(h)
	return h
}

// FieldValidation records how long a write took, by its parameter fieldValidation.
func (re *Requests) FieldValidation(value string, took time.Duration) {
	h := re.validation[value]
	if h == nil {
		h = re.validation[invalid]
	}
	h.Observe(int64(took))
}

// filterDuration returns a function that records how long requests take to pass a filter.
func (re *Requests) filterDuration(filter string) func(time.Duration) {
	h := re.filters.With(filter)
	return func(took time.Duration) { h.Observe(int64(took)) }
}

// LongRunning returns the gauge of long-running requests for requests like r.
func (re *Requests) LongRunning(r Request) prometheus.Gauge {
	r.DryRun = ""
	s := re.series(&r)
	re.mu.RLock()
	g := s.longRunning
	re.mu.RUnlock()
	if g != nil {
		return g
	}
	known := re.bounded(&r)
	labels := known.labels()
	g = re.longRunning.WithLabelValues(labels[:len(labels)-1]...)
	re.mu.Lock()
	s.longRunning = g
	re.mu.Unlock()
	return g
}

// series returns the series of r. All requests with the same bounded values share them. Most
// requests already have bounded values and are found by one lookup; only bounded values become
// keys.
func (re *Requests) series(r *Request) *series {
	sent := r.sent()
	re.mu.RLock()
	s := re.seriesOf[sent]
	re.mu.RUnlock()
	if s != nil {
		return s
	}
	known := re.bounded(r)
	re.mu.Lock()
	defer re.mu.Unlock()
	if s = re.seriesOf[known]; s == nil {
		s = re.newSeries(&known)
		re.seriesOf[known] = s
	}
	return s
}

func (re *Requests) newSeries(known *knownRequest) *series {
	labels := known.labels()
	withoutDryRun := labels[:len(labels)-1]
	s := &series{duration: re.duration.With(labels...)}
	// As in kube-apiserver, watches have no service level, and only the responses of reads are measured.
	verb := verbs[known.verb]
	if verb != "WATCH" {
		s.slis = re.slis.With(withoutDryRun...)
	}
	if verb == "GET" || verb == "LIST" || verb == "WATCH" {
		s.sizes = re.sizes.With(withoutDryRun...)
	}
	return s
}

// sent returns the values of r as they were sent.
func (r *Request) sent() knownRequest {
	known := knownRequest{
		verb: verbIndex(r.Verb), scope: scopeIndex(r.Scope), dryRun: dryRunIndex(r.DryRun), component: r.Component,
		group: r.Group, version: r.Version, resource: r.Resource, subresource: r.Subresource,
	}
	if r.Resource == "" {
		known.subresource = r.Path
	}
	return known
}

// bounded returns r with unknown values replaced. A request for a resource, version or
// subresource that is not served keeps only its verb and its scope.
func (re *Requests) bounded(r *Request) knownRequest {
	known := r.sent()
	if r.Resource == "" {
		known.subresource = boundedPath(r.Path)
		return known
	}
	name := r.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if r.Component == Aggregator { // the APIService is known, but not what the server behind it serves
		known.resource, known.subresource = "", ""
		return known
	}
	if !re.known(r.Group, r.Version, name) {
		known.group, known.version, known.resource, known.subresource = "", "", "", ""
	}
	return known
}

func verbIndex(verb string) uint8 {
	switch verb {
	case "GET":
		return 1
	case "LIST":
		return 2
	}
	return uint8(max(0, slices.Index(verbs, verb))) //nolint:gosec // there are few verbs
}

func scopeIndex(scope string) uint8 {
	switch scope {
	case "cluster":
		return 1
	case "namespace":
		return 2
	case "resource":
		return 3
	}
	return 0
}

func dryRunIndex(value string) uint8 {
	switch value {
	case "":
		return 0
	case "All":
		return 1
	}
	return 2
}

// boundedPath returns the path if it is counted separately, otherwise "".
func boundedPath(path string) string {
	switch path {
	case "/healthz", "/livez", "/readyz", "api", "apis", "openapi/v3", "openapi/v3/":
		return path
	}
	return ""
}

// boundedCode returns a valid HTTP status code unchanged, otherwise 0.
func boundedCode(code int) int {
	const least, most = 100, 599
	if code < least || code > most {
		return 0
	}
	return code
}
