package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// admissionWebhooks has the metrics of admission webhooks.
type admissionWebhooks struct {
	seconds                       *prometheus.HistogramVec
	requests, rejections, ignored *prometheus.CounterVec
	skipped                       *prometheus.CounterVec // which kube-apiserver does not have

	conditionErrors, exclusions *prometheus.CounterVec
	conditionSeconds            *prometheus.HistogramVec
}

func newAdmissionWebhooks(r *lazyRegistry) *admissionWebhooks {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_admission_" + name, Help: help}, labels)
	}
	m := &admissionWebhooks{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_webhook_admission_duration_seconds",
			Help: "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each " +
				"operation and API resource and type (validate or admit).",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25},
		}, []string{"name", "type", "operation", "rejected"}),
		requests: counter("webhook_request_total", "[ALPHA] Admission webhook request total, identified by name and broken out for "+
			"each admission type (validating or admit) and operation. Additional labels specify whether the request was "+
			"rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics "+
			"cardinality bounded.", "name", "type", "operation", "code", "rejected"),
		rejections: counter("webhook_rejection_count", "[ALPHA] Admission webhook rejection count, identified by name and broken out "+
			"for each admission type (validating or admit) and operation. Additional labels specify an error type "+
			"(calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a "+
			"non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver "+
			"when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics "+
			"cardinality bounded.", "name", "type", "operation", "error_type", "rejection_code"),
		ignored: counter("webhook_fail_open_count", "[ALPHA] Admission webhook fail open count, identified by name and broken out for "+
			"each admission type (validating or admit).", "name", "type"),
	}
	m.skipped = counter("webhook_skipped_total", "Admission webhook skip count, identified by name and broken out for each "+
		"admission type (validating or admit): writes that did without a webhook because its calls kept failing "+
		"(--admission-webhook-budget).", "name", "type")
	m.addConditions(counter)
	r.MustRegister(m.seconds, m.requests, m.rejections, m.ignored, m.skipped, m.conditionErrors, m.exclusions,
		m.conditionSeconds)
	return m
}

// addConditions makes the metrics of match conditions, of webhooks and of policies.
func (m *admissionWebhooks) addConditions(counter func(name, help string, labels ...string) *prometheus.CounterVec) {
	labels := []string{"name", "kind", "type", "operation"}
	m.conditionErrors = counter("match_condition_evaluation_errors_total", "[ALPHA] Admission match condition evaluation "+
		"errors count, identified by name of resource containing the match condition and broken out for each kind "+
		"containing matchConditions (webhook or policy), operation and admission type (validate or admit).", labels...)
	m.exclusions = counter("match_condition_exclusions_total", "[ALPHA] Admission match condition evaluation exclusions "+
		"count, identified by name of resource containing the match condition and broken out for each kind containing "+
		"matchConditions (webhook or policy), operation and admission type (validate or admit).", labels...)
	m.conditionSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_admission_match_condition_evaluation_seconds",
		Help: "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each " +
			"kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
		Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5},
	}, labels)
}

// mostCode is the label of all codes beyond it.
const mostCode = 600

// Webhook records a call of an admission webhook. code is the HTTP status of what it answered. failure says why a write
// was rejected: "no_error" if the webhook decided so; it is empty if that is not counted.
func (m *Admission) Webhook(
	name, kind, operation string, rejected bool, code int, failure string, took time.Duration,
) {
	w, refused, number := m.webhooks, strconv.FormatBool(rejected), strconv.Itoa(min(code, mostCode))
	w.seconds.WithLabelValues(name, kind, operation, refused).Observe(took.Seconds())
	if failure != "" {
		w.rejections.WithLabelValues(name, kind, operation, failure, number).Inc()
	}
	w.requests.WithLabelValues(name, kind, operation, number, refused).Inc()
}

// MatchConditions records the evaluation of the match conditions of a "webhook" or a "policy". failed is the number of
// conditions with an error; excluded says that the write goes on without the webhook. As kube-apiserver does, it measures
// the time only if the conditions do not match, and counts exclusions under other names of the pass than the rest.
func (m *Admission) MatchConditions(
	kind, name, pass, operation string, failed int, match, excluded bool, took time.Duration,
) {
	if !match {
		m.webhooks.conditionSeconds.WithLabelValues(name, kind, pass, operation).Observe(took.Seconds())
	}
	if failed > 0 {
		m.webhooks.conditionErrors.WithLabelValues(name, kind, pass, operation).Add(float64(failed))
	}
	if excluded {
		if pass == "validating" {
			pass = "validate"
		}
		m.webhooks.exclusions.WithLabelValues(name, kind, pass, operation).Inc()
	}
}

// FailOpen records that the failure of an admission webhook was ignored.
func (m *Admission) FailOpen(name, kind string) { m.webhooks.ignored.WithLabelValues(name, kind).Inc() }

// Skipped records that a write did without an admission webhook whose calls keep failing.
func (m *Admission) Skipped(name, kind string) { m.webhooks.skipped.WithLabelValues(name, kind).Inc() }
