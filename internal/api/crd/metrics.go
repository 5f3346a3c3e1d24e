package crd

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// RuleMetrics has the times of the validation rules of custom resources. A nil RuleMetrics records nothing.
type RuleMetrics struct{ compilation, evaluation prometheus.Histogram }

// NewRuleMetrics registers and returns the metrics of rules. It may be called once.
func NewRuleMetrics(m *metrics.Metrics) *RuleMetrics {
	return &RuleMetrics{
		compilation: m.Histogram("apiserver_cel_compilation_duration_seconds",
			"[BETA] CEL compilation time in seconds.", nil),
		evaluation: m.Histogram("apiserver_cel_evaluation_duration_seconds",
			"[BETA] CEL evaluation time in seconds.", nil),
	}
}

// Compiled records the time from start until now, for the compilation of the rules of a schema.
func (m *RuleMetrics) Compiled(start time.Time) {
	if m != nil {
		m.compilation.Observe(time.Since(start).Seconds())
	}
}

// Evaluated records the time from start until now, for the evaluation of the rules of a schema on an object.
func (m *RuleMetrics) Evaluated(start time.Time) {
	if m != nil {
		m.evaluation.Observe(time.Since(start).Seconds())
	}
}
