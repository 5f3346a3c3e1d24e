package webhookauthorizer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of webhooks. It is an Observer.
type Metrics struct {
	calls, failOpen              *prometheus.CounterVec
	seconds                      *prometheus.HistogramVec
	matchErrors, matchExclusions *prometheus.CounterVec
	matchSeconds                 *prometheus.HistogramVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	return &Metrics{
		calls: m.Counters("apiserver_authorization_webhook_evaluations_total",
			"[ALPHA] Round-trips to authorization webhooks.", "name", "result"),
		seconds: m.Histograms("apiserver_authorization_webhook_duration_seconds",
			"[ALPHA] Request latency in seconds.", prometheus.DefBuckets, "name", "result"),
		failOpen: m.Counters("apiserver_authorization_webhook_evaluations_fail_open_total",
			"[ALPHA] NoOpinion results due to webhook timeout or error.", "name", "result"),
		matchErrors: m.Counters("apiserver_authorization_match_condition_evaluation_errors_total",
			"[ALPHA] Total number of errors when an authorization webhook encounters a match condition error split by "+
				"authorizer type and name.", "type", "name"),
		matchExclusions: m.Counters("apiserver_authorization_match_condition_exclusions_total",
			"[ALPHA] Total number of exclusions when an authorization webhook is skipped because match conditions "+
				"exclude it.", "type", "name"),
		matchSeconds: m.Histograms("apiserver_authorization_match_condition_evaluation_seconds",
			"[ALPHA] Authorization match condition evaluation time in seconds, split by authorizer type and name.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "type", "name"),
	}
}

// AuthorizationWebhook implements Observer.
func (m *Metrics) AuthorizationWebhook(name, result string, took time.Duration) {
	m.calls.WithLabelValues(name, result).Inc()
	m.seconds.WithLabelValues(name, result).Observe(took.Seconds())
}

// AuthorizationWebhookFailOpen implements Observer.
func (m *Metrics) AuthorizationWebhookFailOpen(name, result string) {
	m.failOpen.WithLabelValues(name, result).Inc()
}

// AuthorizationMatch implements Observer.
func (m *Metrics) AuthorizationMatch(name string, took time.Duration, failed, excluded bool) {
	m.matchSeconds.WithLabelValues(kindLabel, name).Observe(took.Seconds())
	if failed {
		m.matchErrors.WithLabelValues(kindLabel, name).Inc()
	}
	if excluded {
		m.matchExclusions.WithLabelValues(kindLabel, name).Inc()
	}
}

// kindLabel is the type of these authorizers in metrics.
const kindLabel = "Webhook"
