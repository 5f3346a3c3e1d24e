package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metric of the times of changes of the graph. It returns Options.Observe. It may be called once.
func NewMetrics(m *metrics.Metrics) func(operation string, took time.Duration) {
	seconds := m.Histograms("node_authorizer_graph_actions_duration_seconds", "[ALPHA] Histogram of duration of graph "+
		"actions in node authorizer.", prometheus.ExponentialBuckets(0.0001, 2, 12), "operation")
	return func(operation string, took time.Duration) { seconds.WithLabelValues(operation).Observe(took.Seconds()) }
}
