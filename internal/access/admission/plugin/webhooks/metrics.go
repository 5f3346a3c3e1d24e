package webhooks

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of admission webhooks.
type Metrics struct {
	*celvars.ConditionMetrics

	seconds                       *prometheus.HistogramVec
	requests, rejections, ignored *prometheus.CounterVec
	skipped                       *prometheus.CounterVec // which kube-apiserver does not have
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(r *metrics.Metrics, conditions *celvars.ConditionMetrics) *Metrics {
	m := &Metrics{
		ConditionMetrics: conditions,
		seconds: r.Histograms("apiserver_admission_webhook_admission_duration_seconds",
			"[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each "+
				"operation and API resource and type (validate or admit).",
			[]float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25}, "name", "type", "operation", "rejected"),
		requests: r.Counters("apiserver_admission_webhook_request_total",
			"[ALPHA] Admission webhook request total, identified by name and broken out for each admission type "+
				"(validating or admit) and operation. Additional labels specify whether the request was rejected or "+
				"not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics "+
				"cardinality bounded.", "name", "type", "operation", "code", "rejected"),
		rejections: r.Counters("apiserver_admission_webhook_rejection_count",
			"[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type "+
				"(validating or admit) and operation. Additional labels specify an error type (calling_webhook_error "+
				"or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero "+
				"rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver "+
				"when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the "+
				"metrics cardinality bounded.", "name", "type", "operation", "error_type", "rejection_code"),
		ignored: r.Counters("apiserver_admission_webhook_fail_open_count", "[ALPHA] Admission webhook fail open "+
			"count, identified by name and broken out for each admission type (validating or admit).", "name", "type"),
	}
	m.skipped = r.Counters("apiserver_admission_webhook_skipped_total", "Admission webhook skip count, identified by "+
		"name and broken out for each admission type (validating or admit): writes that did without a webhook because "+
		"its calls kept failing (--admission-webhook-budget).", "name", "type")
	return m
}

// mostCode is the largest code in a label. Larger codes have the same label.
const mostCode = 600

// Webhook records a call. kind is "admit" or "validating", operation the operation of the write, such as "CREATE".
// code is the HTTP status of the webhook's response. failure is the reason why a write was rejected:
// "calling_webhook_error", "apiserver_internal_error", or "no_error" if the webhook rejected it. failure is empty
// if the write was not rejected or its client went away.
func (m *Metrics) Webhook(
	name, kind, operation string, rejected bool, code int, failure string, took time.Duration,
) {
	refused, number := strconv.FormatBool(rejected), strconv.Itoa(min(code, mostCode))
	m.seconds.WithLabelValues(name, kind, operation, refused).Observe(took.Seconds())
	if failure != "" {
		m.rejections.WithLabelValues(name, kind, operation, failure, number).Inc()
	}
	m.requests.WithLabelValues(name, kind, operation, number, refused).Inc()
}

// FailOpen records that the failure of a webhook was ignored.
func (m *Metrics) FailOpen(name, kind string) { m.ignored.WithLabelValues(name, kind).Inc() }

// Skipped records that a write has skipped a webhook whose budget is used up.
func (m *Metrics) Skipped(name, kind string) { m.skipped.WithLabelValues(name, kind).Inc() }
