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
}

func newAdmissionWebhooks(r prometheus.Registerer) *admissionWebhooks {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_admission_webhook_" + name, Help: help}, labels)
	}
	m := &admissionWebhooks{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_webhook_admission_duration_seconds",
			Help: "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each " +
				"operation and API resource and type (validate or admit).",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25},
		}, []string{"name", "type", "operation", "rejected"}),
		requests: counter("request_total", "[ALPHA] Admission webhook request total, identified by name and broken out for "+
			"each admission type (validating or mutating) and operation. Additional labels specify whether the request was "+
			"rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics "+
			"cardinality bounded.", "name", "type", "operation", "code", "rejected"),
		rejections: counter("rejection_count", "[ALPHA] Admission webhook rejection count, identified by name and broken out "+
			"for each admission type (validating or admit) and operation. Additional labels specify an error type "+
			"(calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a "+
			"non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver "+
			"when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics "+
			"cardinality bounded.", "name", "type", "operation", "error_type", "rejection_code"),
		ignored: counter("fail_open_count", "[ALPHA] Admission webhook fail open count, identified by name and broken out for "+
			"each admission type (validating or admit).", "name", "type"),
	}
	m.skipped = counter("skipped_total", "Admission webhook skip count, identified by name and broken out for each "+
		"admission type (validating or admit): writes that did without a webhook because its calls kept failing "+
		"(--admission-webhook-budget).", "name", "type")
	r.MustRegister(m.seconds, m.requests, m.rejections, m.ignored, m.skipped)
	return m
}

// mostCode is the label of all codes beyond it.
const mostCode = 600

// Webhook records a call of an admission webhook. failure is why a write was rejected without the webhook's decision;
// "no_error" if there was one.
func (m *Admission) Webhook(
	name, kind, operation string, rejected bool, code int, failure string, took time.Duration,
) {
	w, refused, number := m.webhooks, strconv.FormatBool(rejected), strconv.Itoa(min(code, mostCode))
	w.seconds.WithLabelValues(name, kind, operation, refused).Observe(took.Seconds())
	shown := "200"
	if rejected {
		w.rejections.WithLabelValues(name, kind, operation, failure, number).Inc()
		shown = number
	}
	w.requests.WithLabelValues(name, kind, operation, shown, refused).Inc()
}

// FailOpen records that the failure of an admission webhook was ignored.
func (m *Admission) FailOpen(name, kind string) { m.webhooks.ignored.WithLabelValues(name, kind).Inc() }

// Skipped records that a write did without an admission webhook whose calls keep failing.
func (m *Admission) Skipped(name, kind string) { m.webhooks.skipped.WithLabelValues(name, kind).Inc() }
