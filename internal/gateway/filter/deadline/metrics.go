package deadline

import "github.com/keelson-dev/keelson/internal/machinery/metrics"

// NewMetrics registers the metric of handlers that returned after their request had been cut off. It returns
// Options.Abandoned. It may be called once.
func NewMetrics(m *metrics.Metrics) (abandoned func(panicked bool)) {
	late := m.Counters("apiserver_request_post_timeout_total", "[ALPHA] Tracks the activity of the request handlers "+
		"after the associated requests have been timed out by the apiserver", "source", "status")
	return func(panicked bool) {
		status := "ok"
		if panicked {
			status = "panic"
		}
		late.WithLabelValues("timeout-handler", status).Inc()
	}
}
