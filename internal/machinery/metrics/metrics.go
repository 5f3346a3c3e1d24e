// Package metrics has the metrics of the server, with kube-apiserver's names and labels, and
// serves them as Prometheus text.
//
// Every label has a bounded set of values, so that clients cannot create series. Values from a
// request pass the method bounded of Requests. Other
// values are constants, or come from the configuration or from the served resources.
package metrics

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the metrics of one server. They are created before the parts of the server that
// use them.
type Metrics struct {
	registry, slis *lazyRegistry
	shown          *exposition // of registry

	watchEvents  *prometheus.CounterVec
	watchSizes   *prometheus.HistogramVec
	handshakes   prometheus.Counter
	late         *prometheus.CounterVec
	filters      *histogramVec
	authn        *authentication
	authz        *authorization
	admission    *Admission
	healthchecks *prometheus.CounterVec
	healthcheck  *prometheus.GaugeVec
}

// Build has the labels of the metric kubernetes_build_info.
type Build map[string]string

var (
	watchBuckets  = prometheus.ExponentialBuckets(1024, 2, 8)
	filterBuckets = []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 15, 30}
)

// New returns the metrics of a server.
func New(build Build, o Options) *Metrics {
	m := &Metrics{registry: &lazyRegistry{}, slis: &lazyRegistry{}}
	m.shown = newExposition(m.registry, o)
	m.watchEvents = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_watch_events_total", Help: "[ALPHA] Number of events sent in watch clients",
	}, []string{"group", "version", "resource"})
	m.watchSizes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_watch_events_sizes", Help: "[ALPHA] Watch event size distribution in bytes", Buckets: watchBuckets,
	}, []string{"group", "version", "resource"})
	m.handshakes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "apiserver_tls_handshake_errors_total", Help: "[ALPHA] Number of requests dropped with 'TLS handshake " +
			"error from' error",
	})
	m.late = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_request_post_timeout_total",
		Help: "[ALPHA] Tracks the activity of the request handlers after the associated requests have been timed out " +
			"by the apiserver",
	}, []string{"source", "status"})
	m.healthchecks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubernetes_healthchecks_total", Help: "[STABLE] This metric records the results of all healthcheck.",
	}, []string{"name", "type", "status"})
	m.healthcheck = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_healthcheck", Help: "[STABLE] This metric records the result of a single healthcheck.",
	}, []string{"name", "type"})
	m.filters = newDurations("apiserver_request_filter_duration_seconds", "[ALPHA] Request filter latency distribution in "+
		"seconds, for each filter type", filterBuckets, "filter")
	m.slis.MustRegister(m.healthchecks, m.healthcheck)

	m.authn = newAuthentication(m.registry)
	m.authz = newAuthorization(m.registry)
	m.admission = newAdmission(m.registry)

	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git " +
			"tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it " +
			"is running.",
		ConstLabels: prometheus.Labels(build),
	})
	info.Set(1)

	m.registry.MustRegister(append(slices.Clone(ofProcess()), m.watchEvents, m.watchSizes, m.handshakes, m.late, m.filters, info)...)
	return m
}

// Register adds collectors of other packages.
func (m *Metrics) Register(c ...prometheus.Collector) { m.registry.MustRegister(c...) }

func resolveSeries(v *prometheus.CounterVec, values ...string) map[string]prometheus.Counter {
	out := make(map[string]prometheus.Counter, len(values))
	for _, value := range values {
		out[value] = v.WithLabelValues(value)
	}
	return out
}

// HandshakeError counts a connection whose TLS handshake failed.
func (m *Metrics) HandshakeError() { m.handshakes.Inc() }

// AbandonedHandler counts a handler that returned after its request had been cut off.
func (m *Metrics) AbandonedHandler(panicked bool) {
	status := "ok"
	if panicked {
		status = "panic"
	}
	m.late.WithLabelValues("timeout-handler", status).Inc()
}

// FilterDuration returns a function that records how long requests take to pass a filter.
func (m *Metrics) FilterDuration(filter string) func(time.Duration) {
	h := m.filters.with(filter)
	return func(took time.Duration) { h.observe(int64(took)) }
}

// Healthcheck records the result of one check of an endpoint (livez, readyz, healthz).
func (m *Metrics) Healthcheck(name, endpoint string, ok bool) {
	status, value := "error", 0.0
	if ok {
		status, value = "success", 1
	}
	m.healthchecks.WithLabelValues(name, endpoint, status).Inc()
	m.healthcheck.WithLabelValues(name, endpoint).Set(value)
}

// WatchEvents has the counters of the events sent for one resource. Get it once per watch, not
// once per event.
type WatchEvents struct {
	count prometheus.Counter
	sizes prometheus.Observer
}

// WatchEvents returns the counters of a resource, which must be a served one.
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

// Handler serves all metrics.
func (m *Metrics) Handler() http.Handler { return handler(m.shown) }

// SLIHandler serves only the results of the health checks (KEP-3466).
func (m *Metrics) SLIHandler() http.Handler { return handler(m.slis) }

func handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{})
}
