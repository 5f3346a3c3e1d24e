// Package metrics has the registry of a server's metrics and serves them as Prometheus text. The metrics themselves are
// beside what they measure, mostly in a file metrics.go with a function NewMetrics that registers them. They have
// kube-apiserver's names, help texts and labels.
//
// Every label has a bounded set of values, so that clients cannot create series. Values from a request pass the method
// bounded of requestmetrics.Requests. Other values are constants, or come from the configuration or from the served
// resources.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the metrics of one server. They are created before the parts of the server that
// use them. Their collectors are registered in package prometheus when
// metrics are first read.
type Metrics struct {
	*Set                // what Handler serves
	SLIs  *Set          // service level indicators, which SLIHandler serves
	shown *exposition   // gathers from Set
	slis  *lazyRegistry // gathers from SLIs
}

// Build has the labels of the metric kubernetes_build_info.
type Build map[string]string

// New returns the metrics of a server, which include those of the process and of the build.
func New(build Build, o Options) *Metrics {
	all, slis := &lazyRegistry{}, &lazyRegistry{}
	m := &Metrics{Set: &all.Set, SLIs: &slis.Set, shown: newExposition(all, o), slis: slis}
	m.Register(ofProcess()...)
	m.info("kubernetes_build_info", "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git "+
		"commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on "+
		"which it is running.", prometheus.Labels(build))
	return m
}

// info makes a gauge that is always 1.
func (m *Metrics) info(name, help string, labels prometheus.Labels) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	gauge.Set(1)
	m.Register(gauge)
}

// Resolve returns the counters of a metric that has one label, in a map by the given values of this label.
func Resolve(v *prometheus.CounterVec, values ...string) map[string]prometheus.Counter {
	out := make(map[string]prometheus.Counter, len(values))
	for _, value := range values {
		out[value] = v.WithLabelValues(value)
	}
	return out
}

// Status returns the value that labels named status and result have for success and failure.
func Status(ok bool) string {
	if ok {
		return "success"
	}
	return "failure"
}

// Handler serves all metrics.
func (m *Metrics) Handler() http.Handler { return handler(m.shown) }

// SLIHandler serves only the results of the health checks (KEP-3466).
func (m *Metrics) SLIHandler() http.Handler { return handler(m.slis) }

func handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{})
}
