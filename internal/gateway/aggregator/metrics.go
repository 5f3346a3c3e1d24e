package aggregator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// Metrics are the metrics of an Aggregator under the names of kube-apiserver. They are a prometheus.Collector.
type Metrics struct {
	*metrics.Set

	certificates      *webhook.Metrics
	aggregations      prometheus.Counter
	becameUnavailable *prometheus.CounterVec
}

// newMetrics returns metrics. unavailable reports whether each APIService is unavailable; it is called when metrics are
// read.
func newMetrics(unavailable func() map[string]bool) *Metrics {
	s := new(metrics.Set)
	m := &Metrics{
		Set:          s,
		certificates: webhook.NewCertificateMetrics("kube_aggregator"),
		aggregations: s.Counter("aggregator_discovery_aggregation_count_total",
			"[ALPHA] Counter of number of times discovery was aggregated"),
		becameUnavailable: s.Counters("aggregator_unavailable_apiservice_total", "[ALPHA] Counter of APIServices "+
			"which are marked as unavailable broken down by APIService name and reason.", "name", "reason"),
	}
	isUnavailable := prometheus.NewDesc("aggregator_unavailable_apiservice",
		"[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.", []string{"name"}, nil)
	s.Register(m.certificates, metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
		for name, unavailable := range unavailable() {
			value := int64(0)
			if unavailable {
				value = 1
			}
			gauge(isUnavailable, value, name)
		}
	}, isUnavailable))
	return m
}
