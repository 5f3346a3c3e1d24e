package convert

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Values of the label failure_type.
const (
	callFailure      = "conversion_webhook_call_failure"
	malformedFailure = "conversion_webhook_malformed_response_failure"
	partialFailure   = "conversion_webhook_partial_response_failure"
	invalidFailure   = "conversion_webhook_invalid_converted_object_failure"
)

// Metrics has the metrics of conversion webhooks, with the names of kube-apiserver. It implements
// prometheus.Collector.
type Metrics struct {
	*metrics.Set

	requests   *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	conversion *prometheus.HistogramVec
}

// NewMetrics returns metrics that are all zero.
func NewMetrics() *Metrics {
	s := new(metrics.Set)
	return &Metrics{
		Set: s,
		requests: s.Counters("apiserver_conversion_webhook_request_total", "[ALPHA] Counter for conversion webhook "+
			"requests with success/failure and failure error type", "result", "failure_type"),
		latency: s.Histograms("apiserver_conversion_webhook_duration_seconds",
			"[ALPHA] Conversion webhook request latency",
			[]float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60}, "result", "failure_type"),
		conversion: s.Histograms("apiserver_crd_conversion_webhook_duration_seconds",
			"[ALPHA] CRD webhook conversion duration in seconds", prometheus.ExponentialBuckets(0.001, 2, 15),
			"crd_name", "from_version", "to_version", "succeeded"),
	}
}

// Forget removes the time series of a removed definition.
func (m *Metrics) Forget(name string) {
	m.conversion.DeletePartialMatch(prometheus.Labels{"crd_name": name})
}

// observeCall counts a call of a webhook. failure is the label failure_type, "" for a success.
func (m *Metrics) observeCall(took time.Duration, failure string) {
	if m == nil {
		return
	}
	result := "success"
	if failure != "" {
		result = "failure"
	}
	m.requests.WithLabelValues(result, failure).Inc()
	m.latency.WithLabelValues(result, failure).Observe(took.Seconds())
}

func (m *Metrics) converted(name, from, to string, took time.Duration, succeeded string) {
	if m != nil {
		m.conversion.WithLabelValues(name, from, to, succeeded).Observe(took.Seconds())
	}
}
