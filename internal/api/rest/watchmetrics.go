package rest

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewWatchMetrics registers the metrics of the events of watches, and returns the function for
// Options.WatchCounter. That function may be called only for served resources. NewWatchMetrics may be called once.
func NewWatchMetrics(m *metrics.Metrics) func(group, version, resource string) func(bytes int) {
	labels := []string{"group", "version", "resource"}
	count := m.Counters("apiserver_watch_events_total", "[BETA] Number of events sent in watch clients", labels...)
	sizes := m.Histograms("apiserver_watch_events_sizes",
		"[BETA] Watch event size distribution in bytes", prometheus.ExponentialBuckets(1024, 2, 8), labels...)
	return func(group, version, resource string) func(int) {
		count, sizes := count.WithLabelValues(group, version, resource), sizes.WithLabelValues(group, version, resource)
		return func(bytes int) {
			count.Inc()
			sizes.Observe(float64(bytes))
		}
	}
}
