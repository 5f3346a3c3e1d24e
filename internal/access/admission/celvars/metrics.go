package celvars

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// ConditionMetrics has the metrics of the match conditions of webhooks and of policies.
type ConditionMetrics struct {
	failures, exclusions *prometheus.CounterVec
	seconds              *prometheus.HistogramVec
}

// NewConditionMetrics registers and returns the metrics. It may be called once.
func NewConditionMetrics(r *metrics.Metrics) *ConditionMetrics {
	m := &ConditionMetrics{}
	labels := []string{"name", "kind", "type", "operation"}
	m.failures = r.Counters("apiserver_admission_match_condition_evaluation_errors_total",
		"[ALPHA] Admission match condition evaluation errors count, identified by name of resource containing the "+
			"match condition and broken out for each kind containing matchConditions (webhook or policy), operation "+
			"and admission type (validate or admit).", labels...)
	m.exclusions = r.Counters("apiserver_admission_match_condition_exclusions_total",
		"[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the "+
			"match condition and broken out for each kind containing matchConditions (webhook or policy), operation "+
			"and admission type (validate or admit).", labels...)
	m.seconds = r.Histograms("apiserver_admission_match_condition_evaluation_seconds",
		"[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each "+
			"kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
		[]float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}, labels...)
	return m
}

// MatchConditions records the evaluation of the match conditions of a "webhook" or a "policy". failed is the
// number of conditions with an error; excluded means that the write continues without the webhook. As in
// kube-apiserver, the time is measured only if the conditions do not match, and the metric of exclusions has the
// pass "validate" where the others have "validating".
func (m *ConditionMetrics) MatchConditions(
	kind, name, pass, operation string, failed int, match, excluded bool, took time.Duration,
) {
	if !match {
		m.seconds.WithLabelValues(name, kind, pass, operation).Observe(took.Seconds())
	}
	if failed > 0 {
		m.failures.WithLabelValues(name, kind, pass, operation).Add(float64(failed))
	}
	if excluded {
		if pass == "validating" {
			pass = "validate"
		}
		m.exclusions.WithLabelValues(name, kind, pass, operation).Inc()
	}
}
