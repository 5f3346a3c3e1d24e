package tokencache

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metrics of the caches of tokens, and returns what records them. kube-apiserver describes none of
// them. It may be called once.
func NewMetrics(m *metrics.Metrics) Recorder {
	const help = "[ALPHA] "
	counter := func(name string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"status"})
	}
	requests := counter("authentication_token_cache_request_total")
	fetched := counter("authentication_token_cache_fetch_total")
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "authentication_token_cache_request_duration_seconds", Help: help,
	}, []string{"status"})
	active := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "authentication_token_cache_active_fetch_count", Help: help,
	}, []string{"status"})
	m.Register(requests, fetched, seconds, active)
	byHit := map[bool]prometheus.Counter{true: requests.WithLabelValues("hit"), false: requests.WithLabelValues("miss")}
	durations := map[bool]prometheus.Observer{true: seconds.WithLabelValues("hit"), false: seconds.WithLabelValues("miss")}
	byOK := map[bool]prometheus.Counter{true: fetched.WithLabelValues("ok"), false: fetched.WithLabelValues("error")}
	fetching, waiting := active.WithLabelValues("in_flight"), active.WithLabelValues("blocked")
	return Recorder{
		Requested: func(hit bool, start time.Time) {
			byHit[hit].Inc()
			durations[hit].Observe(time.Since(start).Seconds())
		},
		Fetching: func() (done func(ok bool)) {
			fetching.Inc()
			return func(ok bool) {
				fetching.Dec()
				byOK[ok].Inc()
			}
		},
		Waiting: func() (done func()) {
			waiting.Inc()
			return waiting.Dec
		},
	}
}
