// Package metrics counts what the server does, under the names and labels of
// kube-apiserver, and serves the counts as Prometheus text.
//
// Every label value is of a bounded set: a client must not be able to make series.
// What comes from a request passes bounded, which alone makes a knownRequest; the
// other values are constants of the program, or come from its configuration or from
// resources that are served.
package metrics

import (
	"net/http"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// component is the value of the label of that name.
const component = "apiserver"

// Metrics are the counters of one server.
type Metrics struct {
	registry, slis *prometheus.Registry

	requests     *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	sizes        *prometheus.HistogramVec
	longRunning  *prometheus.GaugeVec
	watchEvents  *prometheus.CounterVec
	watchSizes   *prometheus.HistogramVec
	handshakes   prometheus.Counter
	late         *prometheus.CounterVec
	authn        *authentication
	authz        *authorization
	healthchecks *prometheus.CounterVec
	healthcheck  *prometheus.GaugeVec

	// known says whether a resource is served.
	known func(group, version, resource string) bool

	mu       sync.RWMutex // guards requestS and longS
	requestS map[knownRequest]*series
	longS    map[knownRequest]prometheus.Gauge
}

// Request says what a request asks for. Its values may be anything that a client
// sends: they are not labels before they have passed bounded.
type Request struct {
	// Verb is upper case; LIST, WATCH, APPLY and DELETECOLLECTION are their own.
	Verb                                  string
	Group, Version, Resource, Subresource string
	// Path is the path of a request that is not about a resource.
	Path string
	// Scope is cluster, namespace, resource or empty.
	Scope  string
	DryRun string
}

// knownRequest is a Request whose values are each of a bounded set, so that they can
// be labels. bounded makes it.
type knownRequest Request

// labels returns the values of the labels that all metrics of requests have.
func (r *knownRequest) labels() []string {
	subresource := r.Subresource
	if r.Resource == "" {
		subresource = r.Path
	}
	return []string{r.Verb, r.Group, r.Version, r.Resource, subresource, r.Scope, component}
}

// series are the resolved handles of one knownRequest.
type series struct {
	duration, sizes prometheus.Observer
	byCode          sync.Map // int -> prometheus.Counter
}

// Build describes the program for kubernetes_build_info, by label.
type Build map[string]string

// Options are what a server's metrics are made of.
type Options struct {
	Build Build
	// Known says whether a resource (or resource/subresource) is served. Others
	// are counted together.
	Known func(group, version, resource string) bool
	// InFlight returns the bounded requests that are being served.
	InFlight func() (readOnly, mutating int64)
	// StorageSize returns the bytes that the store takes; nil is not reported.
	StorageSize func() int64
	// StorageDamaged returns how many files of the store were found to be damaged
	// since it was opened; nil is not reported.
	StorageDamaged func() int64
	// StorageCluster names the store.
	StorageCluster string
	// Objects returns the number of stored objects by resource, where it is known
	// without reading; nil is not reported.
	Objects func() map[GroupResource]int64
	// Also are the collectors of parts that count for themselves.
	Also []prometheus.Collector
}

// GroupResource names a resource.
type GroupResource struct{ Group, Resource string }

var (
	durationBuckets = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	sizeBuckets     = prometheus.ExponentialBuckets(1000, 10, 7)
	watchBuckets    = prometheus.ExponentialBuckets(1024, 2, 8)
)

// New returns the metrics of a server.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), slis: prometheus.NewRegistry(),
		known: o.Known, requestS: map[knownRequest]*series{}, longS: map[knownRequest]prometheus.Gauge{},
	}
	withoutDryRun := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	labels := append(slices.Clone(withoutDryRun), "dry_run")
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_request_total",
		Help: "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
	}, append(labels, "code"))
	m.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_request_duration_seconds",
		Help:    "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
		Buckets: durationBuckets,
	}, labels)
	m.sizes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_response_sizes",
		Help:    "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
		Buckets: sizeBuckets,
	}, withoutDryRun)
	m.longRunning = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_longrunning_requests",
		Help: "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
	}, withoutDryRun)
	m.watchEvents = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_watch_events_total", Help: "[ALPHA] Number of events sent in watch clients",
	}, []string{"group", "version", "resource"})
	m.watchSizes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_watch_events_sizes", Help: "[ALPHA] Watch event size distribution in bytes", Buckets: watchBuckets,
	}, []string{"group", "version", "resource"})
	m.handshakes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "apiserver_tls_handshake_errors_total", Help: "[ALPHA] Number of requests dropped with 'TLS handshake error from' error",
	})
	m.late = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_request_post_timeout_total",
		Help: "[ALPHA] Tracks the activity of the request handlers after the associated requests have been timed out by the apiserver",
	}, []string{"source", "status"})
	m.healthchecks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubernetes_healthchecks_total", Help: "[STABLE] This metric records the results of all healthcheck.",
	}, []string{"name", "type", "status"})
	m.healthcheck = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_healthcheck", Help: "[STABLE] This metric records the result of a single healthcheck.",
	}, []string{"name", "type"})
	m.slis.MustRegister(m.healthchecks, m.healthcheck)

	m.authn = newAuthentication(m.registry)
	m.authz = newAuthorization(m.registry)

	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kubernetes_build_info",
		Help:        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		ConstLabels: prometheus.Labels(o.Build),
	})
	build.Set(1)

	m.registry.MustRegister(o.Also...)
	m.registry.MustRegister(m.requests, m.duration, m.sizes, m.longRunning, m.watchEvents, m.watchSizes, m.handshakes, m.late, build,
		&derived{o: o}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func resolve(v *prometheus.CounterVec, values ...string) map[string]prometheus.Counter {
	out := make(map[string]prometheus.Counter, len(values))
	for _, value := range values {
		out[value] = v.WithLabelValues(value)
	}
	return out
}

// HandshakeError counts a connection that did not get through TLS.
func (m *Metrics) HandshakeError() { m.handshakes.Inc() }

// Late counts the end of a handler whose request had been cut off.
func (m *Metrics) Late(panicked bool) {
	status := "ok"
	if panicked {
		status = "panic"
	}
	m.late.WithLabelValues("timeout-handler", status).Inc()
}

// Healthcheck notes the result of one check of an endpoint (livez, readyz, healthz).
func (m *Metrics) Healthcheck(name, endpoint string, ok bool) {
	status, value := "error", 0.0
	if ok {
		status, value = "success", 1
	}
	m.healthchecks.WithLabelValues(name, endpoint, status).Inc()
	m.healthcheck.WithLabelValues(name, endpoint).Set(value)
}

// Done counts an answered request.
func (m *Metrics) Done(r Request, code int, bytes int64, took time.Duration) {
	s := m.series(r)
	code = boundedCode(code)
	counter, ok := s.byCode.Load(code)
	if !ok {
		known := m.bounded(&r)
		counter, _ = s.byCode.LoadOrStore(code, m.requests.WithLabelValues(
			append(known.labels(), known.DryRun, strconv.Itoa(code))...))
	}
	counter.(prometheus.Counter).Inc()
	s.duration.Observe(took.Seconds())
	s.sizes.Observe(float64(bytes))
}

// LongRunning returns the gauge of long-running requests like r.
func (m *Metrics) LongRunning(r Request) prometheus.Gauge {
	known := m.bounded(&r)
	known.DryRun = ""
	m.mu.RLock()
	g := m.longS[known]
	m.mu.RUnlock()
	if g != nil {
		return g
	}
	g = m.longRunning.WithLabelValues(known.labels()...)
	m.mu.Lock()
	m.longS[known] = g
	m.mu.Unlock()
	return g
}

// series returns the series of r, which are those of all requests with the same
// bounded values. Only bounded values become keys; most requests have such values as
// they are, and are found without another look at what is served.
func (m *Metrics) series(r Request) *series {
	m.mu.RLock()
	s := m.requestS[knownRequest(r)]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	known := m.bounded(&r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.requestS[known]; s != nil {
		return s
	}
	labels := known.labels()
	s = &series{
		duration: m.duration.WithLabelValues(append(labels, known.DryRun)...),
		sizes:    m.sizes.WithLabelValues(labels...),
	}
	m.requestS[known] = s
	return s
}

// WatchEvents are the series of the events sent for one resource. Resolve them
// once a watch, not once an event.
type WatchEvents struct {
	count prometheus.Counter
	sizes prometheus.Observer
}

// WatchEvents returns the series of a resource, which has to be served.
func (m *Metrics) WatchEvents(group, version, resource string) WatchEvents {
	return WatchEvents{
		count: m.watchEvents.WithLabelValues(group, version, resource),
		sizes: m.watchSizes.WithLabelValues(group, version, resource),
	}
}

// Sent counts one event.
func (w WatchEvents) Sent(bytes int) {
	w.count.Inc()
	w.sizes.Observe(float64(bytes))
}

// derived are the metrics that are read when asked for.
type derived struct{ o Options }

var (
	inflightDesc = prometheus.NewDesc("apiserver_current_inflight_requests",
		"[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.", []string{"request_kind"}, nil)
	storageSizeDesc = prometheus.NewDesc("apiserver_storage_size_bytes",
		"[STABLE] Size of the storage database file physically allocated in bytes.", []string{"storage_cluster_id"}, nil)
	storageDamagedDesc = prometheus.NewDesc("apiserver_storage_damaged_files",
		"[ALPHA] Number of files of the store in which damage was met since it was opened.", []string{"storage_cluster_id"}, nil)
	storageObjectsDesc = prometheus.NewDesc("apiserver_storage_objects",
		"[STABLE] (Deprecated since 1.34.0) [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
		[]string{"resource"}, nil)
	resourceObjectsDesc = prometheus.NewDesc("apiserver_resource_objects",
		"[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
		[]string{"group", "resource"}, nil)
)

func (d *derived) Describe(ch chan<- *prometheus.Desc) {
	ch <- inflightDesc
	ch <- storageSizeDesc
	ch <- storageDamagedDesc
	ch <- storageObjectsDesc
	ch <- resourceObjectsDesc
}

func (d *derived) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	readOnly, mutating := d.o.InFlight()
	gauge(inflightDesc, readOnly, "readOnly")
	gauge(inflightDesc, mutating, "mutating")
	if d.o.StorageSize != nil {
		gauge(storageSizeDesc, d.o.StorageSize(), d.o.StorageCluster)
	}
	if d.o.StorageDamaged != nil {
		gauge(storageDamagedDesc, d.o.StorageDamaged(), d.o.StorageCluster)
	}
	if d.o.Objects == nil {
		return
	}
	counts := d.o.Objects()
	keys := make([]GroupResource, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		return keys[i].Resource < keys[j].Resource || keys[i].Resource == keys[j].Resource && keys[i].Group < keys[j].Group
	})
	for _, k := range keys {
		name := k.Resource
		if k.Group != "" {
			name += "." + k.Group
		}
		gauge(storageObjectsDesc, counts[k], name)
		gauge(resourceObjectsDesc, counts[k], k.Group, k.Resource)
	}
}

// Handler serves all metrics.
func (m *Metrics) Handler() http.Handler { return handler(m.registry) }

// SLIHandler serves the results of the health checks alone (KEP-3466).
func (m *Metrics) SLIHandler() http.Handler { return handler(m.slis) }

func handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{})
}
