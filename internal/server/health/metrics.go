package health

import "github.com/keelson-dev/keelson/internal/machinery/metrics"

// NewMetrics registers the metrics of /metrics/slis (KEP-3466). It returns the Observer that records them. It may be
// called once.
func NewMetrics(m *metrics.Metrics) Observer {
	checks := m.SLIs.Counters("kubernetes_healthchecks_total",
		"[STABLE] This metric records the results of all healthcheck.", "name", "type", "status")
	check := m.SLIs.Gauges("kubernetes_healthcheck",
		"[STABLE] This metric records the result of a single healthcheck.", "name", "type")
	return func(name, endpoint string, ok bool) {
		status, value := "error", 0.0
		if ok {
			status, value = "success", 1
		}
		checks.WithLabelValues(name, endpoint, status).Inc()
		check.WithLabelValues(name, endpoint).Set(value)
	}
}
