package policies

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of ValidatingAdmissionPolicies (checks, seconds) and MutatingAdmissionPolicies.
type Metrics struct {
	*celvars.ConditionMetrics

	checks          *prometheus.CounterVec
	seconds         *prometheus.HistogramVec
	mutations       *prometheus.CounterVec
	mutationSeconds *prometheus.HistogramVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(r *metrics.Metrics, conditions *celvars.ConditionMetrics) *Metrics {
	labels := []string{"policy", "policy_binding", "error_type", "enforcement_action"}
	mutating := labels[:len(labels)-1]
	buckets := []float64{0.0000005, 0.001, 0.01, 0.1, 1.0}
	return &Metrics{
		ConditionMetrics: conditions,
		checks: r.Counters("apiserver_validating_admission_policy_check_total",
			"[BETA] Validation admission policy check total, labeled by policy and further identified by binding and "+
				"enforcement action taken.", labels...),
		seconds: r.Histograms("apiserver_validating_admission_policy_check_duration_seconds",
			"[BETA] Validation admission latency for individual validation expressions in seconds, labeled by policy "+
				"and further including binding and enforcement action taken.", buckets, labels...),
		mutations: r.Counters("apiserver_mutating_admission_policy_check_total", "[ALPHA] Mutation admission policy "+
			"check total, labeled by policy and further identified by binding.", mutating...),
		mutationSeconds: r.Histograms("apiserver_mutating_admission_policy_check_duration_seconds",
			"[ALPHA] Mutation admission latency for individual mutation expressions in seconds, labeled by policy and "+
				"binding.", buckets, mutating...),
	}
}

// PolicyCheck records one expression of a ValidatingAdmissionPolicy that was false or failed. action is allow, deny,
// audit or warn; failure is no_error, compile_error, out_of_budget or invalid_error.
func (m *Metrics) PolicyCheck(policy, binding, failure, action string, took time.Duration) {
	m.checks.WithLabelValues(policy, binding, failure, action).Inc()
	m.seconds.WithLabelValues(policy, binding, failure, action).Observe(took.Seconds())
}

// PolicyMutation records one mutation of a MutatingAdmissionPolicy. failure has the values of PolicyCheck.
func (m *Metrics) PolicyMutation(policy, binding, failure string, took time.Duration) {
	m.mutations.WithLabelValues(policy, binding, failure).Inc()
	m.mutationSeconds.WithLabelValues(policy, binding, failure).Observe(took.Seconds())
}
