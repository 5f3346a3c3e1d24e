package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tokenCache has the metrics of the caches of tokens that were evaluated.
type tokenCache struct {
	requests  map[bool]prometheus.Counter // by whether the token was in the cache
	durations map[bool]prometheus.Observer
	fetched   map[bool]prometheus.Counter // by whether the evaluation had no error
	fetching  prometheus.Gauge
	waiting   prometheus.Gauge
}

// newTokenCache registers and returns the metrics. kube-apiserver describes none of them.
func newTokenCache(r *lazyRegistry) *tokenCache {
	const help = "[ALPHA] "
	counter := func(name string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"status"})
	}
	requests := counter("authentication_token_cache_request_total")
	fetched := counter("authentication_token_cache_fetch_total")
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "authentication_token_cache_request_duration_seconds", Help: help,
	}, []string{"status"})
	active := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "authentication_token_cache_active_fetch_count", Help: help,
	}, []string{"status"})
	r.MustRegister(requests, fetched, durations, active)
	return &tokenCache{
		requests:  map[bool]prometheus.Counter{true: requests.WithLabelValues("hit"), false: requests.WithLabelValues("miss")},
		durations: map[bool]prometheus.Observer{true: durations.WithLabelValues("hit"), false: durations.WithLabelValues("miss")},
		fetched:   map[bool]prometheus.Counter{true: fetched.WithLabelValues("ok"), false: fetched.WithLabelValues("error")},
		fetching:  active.WithLabelValues("in_flight"),
		waiting:   active.WithLabelValues("blocked"),
	}
}

// TokenRequested records that a token whose evaluation began at start was in the cache, or was evaluated.
func (m *Metrics) TokenRequested(cached bool, start time.Time) {
	m.authn.cache.requests[cached].Inc()
	m.authn.cache.durations[cached].Observe(time.Since(start).Seconds())
}

// TokenFetching records the evaluation of a token that is not in the cache, until the returned function is called.
func (m *Metrics) TokenFetching() func(ok bool) {
	m.authn.cache.fetching.Inc()
	return func(ok bool) {
		m.authn.cache.fetching.Dec()
		m.authn.cache.fetched[ok].Inc()
	}
}

// TokenWaiting records that a request waits for the evaluation of its token, until the returned function is called.
func (m *Metrics) TokenWaiting() func() {
	m.authn.cache.waiting.Inc()
	return m.authn.cache.waiting.Dec
}
