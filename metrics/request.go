package metrics

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests has the metrics of requests.
type Requests struct {
	total       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	sizes       *prometheus.HistogramVec
	longRunning *prometheus.GaugeVec

	// known reports whether a resource (or resource/subresource) is served. Others are counted
	// together.
	known func(group, version, resource string) bool

	mu       sync.RWMutex // guards seriesOf and gaugeOf
	seriesOf map[knownRequest]*series
	gaugeOf  map[knownRequest]prometheus.Gauge
}

// NewRequests returns the metrics of requests. known reports whether a resource (or
// resource/subresource) is served: the names of others do not become labels.
func (m *Metrics) NewRequests(known func(group, version, resource string) bool) *Requests {
	q := &Requests{known: known, seriesOf: map[knownRequest]*series{}, gaugeOf: map[knownRequest]prometheus.Gauge{}}
	withoutDryRun := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	labels := append(slices.Clone(withoutDryRun), "dry_run")
	q.total = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_request_total",
		Help: "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, " +
			"resource, scope, component, and HTTP response code.",
	}, append(labels, "code"))
	q.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_request_duration_seconds",
		Help: "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, " +
			"resource, subresource, scope and component.",
		Buckets: durationBuckets,
	}, labels)
	q.sizes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_response_sizes",
		Help: "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, " +
			"scope and component.",
		Buckets: sizeBuckets,
	}, withoutDryRun)
	q.longRunning = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_longrunning_requests",
		Help: "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, " +
			"resource, scope and component. Not all requests are tracked this way.",
	}, withoutDryRun)
	m.registry.MustRegister(q.total, q.duration, q.sizes, q.longRunning)
	return q
}

// Request describes a request. Its values may be anything that a client sends; they become
// labels only after the method bounded has replaced unknown ones.
type Request struct {
	// Verb is the HTTP method, or LIST, WATCH, APPLY, DELETECOLLECTION or CONNECT.
	Verb                                  string
	Group, Version, Resource, Subresource string
	// Path is the path of a non-resource request.
	Path string
	// Scope is cluster, namespace, resource or empty.
	Scope  string
	DryRun string
}

// knownRequest is a Request with bounded values, which can be used as labels. Only the method
// bounded makes one.
type knownRequest Request

// labels returns the values of the labels that all metrics of requests have.
func (r *knownRequest) labels() []string {
	subresource := r.Subresource
	if r.Resource == "" {
		subresource = r.Path
	}
	return []string{r.Verb, r.Group, r.Version, r.Resource, subresource, r.Scope, component}
}

// series has the counters of one knownRequest.
type series struct {
	duration, sizes prometheus.Observer
	byCode          sync.Map // int -> prometheus.Counter
}

// Done counts a request that has been answered.
func (q *Requests) Done(r Request, code int, bytes int64, took time.Duration) {
	s := q.series(r)
	code = boundedCode(code)
	counter, ok := s.byCode.Load(code)
	if !ok {
		known := q.bounded(&r)
		counter, _ = s.byCode.LoadOrStore(code, q.total.WithLabelValues(
			append(known.labels(), known.DryRun, strconv.Itoa(code))...))
	}
	counter.(prometheus.Counter).Inc()
	s.duration.Observe(took.Seconds())
	s.sizes.Observe(float64(bytes))
}

// LongRunning returns the gauge of long-running requests for requests like r.
func (q *Requests) LongRunning(r Request) prometheus.Gauge {
	known := q.bounded(&r)
	known.DryRun = ""
	q.mu.RLock()
	g := q.gaugeOf[known]
	q.mu.RUnlock()
	if g != nil {
		return g
	}
	g = q.longRunning.WithLabelValues(known.labels()...)
	q.mu.Lock()
	q.gaugeOf[known] = g
	q.mu.Unlock()
	return g
}

// series returns the series of r. All requests with the same bounded values share them. Most
// requests already have bounded values and are found by one lookup; only bounded values become
// keys.
func (q *Requests) series(r Request) *series {
	q.mu.RLock()
	s := q.seriesOf[knownRequest(r)]
	q.mu.RUnlock()
	if s != nil {
		return s
	}
	known := q.bounded(&r)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s = q.seriesOf[known]; s != nil {
		return s
	}
	labels := known.labels()
	s = &series{
		duration: q.duration.WithLabelValues(append(labels, known.DryRun)...),
		sizes:    q.sizes.WithLabelValues(labels...),
	}
	q.seriesOf[known] = s
	return s
}

// bounded returns r with unknown values replaced. A request for a resource, version or
// subresource that is not served keeps only its verb and its scope.
func (q *Requests) bounded(r *Request) knownRequest {
	known := knownRequest{Verb: boundedVerb(r.Verb), Scope: boundedScope(r.Scope), DryRun: boundedDryRun(r.DryRun)}
	if r.Resource == "" {
		known.Path = boundedPath(r.Path)
		return known
	}
	name := r.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if q.known(r.Group, r.Version, name) {
		known.Group, known.Version, known.Resource, known.Subresource = r.Group, r.Version, r.Resource, r.Subresource
	}
	return known
}

// otherVerb replaces methods that the API does not have.
const otherVerb = "other"

func boundedVerb(verb string) string {
	switch verb {
	case "GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION", "HEAD", "OPTIONS",
		"CONNECT":
		return verb
	}
	return otherVerb
}

func boundedScope(scope string) string {
	switch scope {
	case "cluster", "namespace", "resource":
		return scope
	}
	return ""
}

func boundedDryRun(value string) string {
	switch value {
	case "", "All":
		return value
	}
	return "invalid"
}

// boundedPath returns the path if it is counted separately, otherwise "".
func boundedPath(path string) string {
	switch path {
	case "/healthz", "/livez", "/readyz", "/version", "/metrics", "/api", "/apis", "/openapi/v2", "/openapi/v3":
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
