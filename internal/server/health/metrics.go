package health

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metrics of /metrics/slis (KEP-3466). It returns the Observer that records them. It may be
// called once.
func NewMetrics(m *metrics.Metrics) Observer {
	checks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubernetes_healthchecks_total", Help: "[STABLE] This metric records the results of all healthcheck.",
	}, []string{"name", "type", "status"})
	check := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_healthcheck", Help: "[STABLE] This metric records the result of a single healthcheck.",
	}, []string{"name", "type"})
	m.RegisterSLI(checks, check)
	return func(name, endpoint string, ok bool) {
		status, value := "error", 0.0
		if ok {
			status, value = "success", 1
		}
		checks.WithLabelValues(name, endpoint, status).Inc()
		check.WithLabelValues(name, endpoint).Set(value)
	}
}
