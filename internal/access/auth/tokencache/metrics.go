package tokencache

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metrics of the caches of tokens, and returns a Recorder for them. As in kube-apiserver,
// their help texts say nothing. It may be called once.
func NewMetrics(m *metrics.Metrics) Recorder {
	const help = "[ALPHA] "
	requests := m.Counters("authentication_token_cache_request_total", help, "status")
	fetched := m.Counters("authentication_token_cache_fetch_total", help, "status")
	seconds := m.Histograms("authentication_token_cache_request_duration_seconds", help, nil, "status")
	active := m.Gauges("authentication_token_cache_active_fetch_count", help, "status")
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
