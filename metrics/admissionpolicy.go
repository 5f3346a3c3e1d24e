package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// admissionPolicies has the metrics of ValidatingAdmissionPolicies.
type admissionPolicies struct {
	checks  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newAdmissionPolicies(r prometheus.Registerer) *admissionPolicies {
	labels := []string{"policy", "policy_binding", "error_type", "enforcement_action"}
	m := &admissionPolicies{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_validating_admission_policy_check_total",
			Help: "[BETA] Validation admission policy check total, labeled by policy and further identified by binding and " +
				"enforcement action taken.",
		}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_validating_admission_policy_check_duration_seconds",
			Help: "[BETA] Validation admission latency for individual validation expressions in seconds, labeled by policy and " +
				"further including binding and enforcement action taken.",
			Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0},
		}, labels),
	}
	r.MustRegister(m.checks, m.seconds)
	return m
}

// PolicyCheck records one expression of a ValidatingAdmissionPolicy that was false or failed.
func (m *Admission) PolicyCheck(policy, binding, failure, action string, took time.Duration) {
	m.policies.checks.WithLabelValues(policy, binding, failure, action).Inc()
	m.policies.seconds.WithLabelValues(policy, binding, failure, action).Observe(took.Seconds())
}
