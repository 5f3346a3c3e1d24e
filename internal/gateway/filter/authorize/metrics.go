package authorize

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metrics of the decisions about requests. It returns the Observer that records them. It may be
// called once.
func NewMetrics(m *metrics.Metrics) Observer {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authorization_attempts_total",
		Help: "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', " +
			"'no-opinion' or 'error'.",
	}, []string{"result"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "authorization_duration_seconds", Help: "[ALPHA] Authorization duration in seconds broken out by result.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"result"})
	m.Register(attempts, seconds)
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
