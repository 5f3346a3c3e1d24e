package impersonate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of impersonation. It is an Observer.
type Metrics struct {
	attempts, checks             *prometheus.CounterVec
	attemptSeconds, checkSeconds *prometheus.HistogramVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	milliseconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	return &Metrics{
		attempts: m.Counters("apiserver_impersonation_attempts_total",
			"[ALPHA] Total number of impersonation attempts split by mode and decision.", "mode", "decision"),
		attemptSeconds: m.Histograms("apiserver_impersonation_attempts_duration_seconds", "[ALPHA] Latency of "+
			"impersonation attempts in seconds split by mode and decision.", milliseconds, "mode", "decision"),
		checks: m.Counters("apiserver_impersonation_authorization_attempts_total", "[ALPHA] Total number of "+
			"authorization checks made by the impersonation handler split by mode and decision.", "mode", "decision"),
		checkSeconds: m.Histograms("apiserver_impersonation_authorization_attempts_duration_seconds",
			"[ALPHA] Latency of authorization checks made by the impersonation handler in seconds split by mode and "+
				"decision.", milliseconds, "mode", "decision"),
	}
}

// Impersonation implements Observer.
func (m *Metrics) Impersonation(mode, decision string, took time.Duration) {
	m.attempts.WithLabelValues(mode, decision).Inc()
	m.attemptSeconds.WithLabelValues(mode, decision).Observe(took.Seconds())
}

// ImpersonationCheck implements Observer.
func (m *Metrics) ImpersonationCheck(mode, decision string, took time.Duration) {
	m.checks.WithLabelValues(mode, decision).Inc()
	m.checkSeconds.WithLabelValues(mode, decision).Observe(took.Seconds())
}
