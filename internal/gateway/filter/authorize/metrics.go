package authorize

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metrics of the decisions about requests. It returns the Observer that records them. It may be
// called once.
func NewMetrics(m *metrics.Metrics) Observer {
	attempts := m.Counters("authorization_attempts_total", "[ALPHA] Counter of authorization attempts broken down by "+
		"result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.", "result")
	seconds := m.Histograms("authorization_duration_seconds", "[ALPHA] Authorization duration in seconds broken out "+
		"by result.", prometheus.ExponentialBuckets(0.001, 2, 15), "result")
	byResult := metrics.Resolve(attempts, "allowed", "denied", "no-opinion", "error")
	durations := map[string]prometheus.Observer{}
	for result := range byResult {
		durations[result] = seconds.WithLabelValues(result)
	}
	return func(result string, took time.Duration) {
		byResult[result].Inc()
		durations[result].Observe(took.Seconds())
	}
}
