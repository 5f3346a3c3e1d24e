package aggregator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// Metrics are the metrics of an Aggregator under the names of kube-apiserver. They are a prometheus.Collector.
type Metrics struct {
	certificates      *webhook.Metrics
	aggregations      prometheus.Counter
	becameUnavailable *prometheus.CounterVec
	isUnavailable     *prometheus.Desc
	// unavailable reports whether each APIService is unavailable.
	unavailable func() map[string]bool
}

func newMetrics() *Metrics {
	return &Metrics{
		certificates: webhook.NewCertificateMetrics("kube_aggregator"),
		aggregations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "aggregator_discovery_aggregation_count_total",
			Help: "[ALPHA] Counter of number of times discovery was aggregated",
		}),
		becameUnavailable: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total",
			Help: "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
		}, []string{"name", "reason"}),
		isUnavailable: prometheus.NewDesc("aggregator_unavailable_apiservice",
			"[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
			[]string{"name"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.certificates.Describe(ch)
	m.aggregations.Describe(ch)
	m.becameUnavailable.Describe(ch)
	ch <- m.isUnavailable
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.certificates.Collect(ch)
	m.aggregations.Collect(ch)
	m.becameUnavailable.Collect(ch)
	for name, unavailable := range m.unavailable() {
		value := 0.0
		if unavailable {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(m.isUnavailable, prometheus.GaugeValue, value, name)
	}
}
