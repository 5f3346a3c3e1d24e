package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Expressions has the times of the validation rules of custom resources. A nil Expressions records nothing.
type Expressions struct{ compilation, evaluation prometheus.Histogram }

// NewExpressions registers and returns the metrics of rules. It may be called once.
func (m *Metrics) NewExpressions() *Expressions {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help})
	}
	e := &Expressions{
		compilation: histogram("apiserver_cel_compilation_duration_seconds", "[BETA] CEL compilation time in seconds."),
		evaluation:  histogram("apiserver_cel_evaluation_duration_seconds", "[BETA] CEL evaluation time in seconds."),
	}
	m.registry.MustRegister(e.compilation, e.evaluation)
	return e
}

// Compiled records that the rules of a schema were compiled, which began at start.
func (e *Expressions) Compiled(start time.Time) {
	if e != nil {
		e.compilation.Observe(time.Since(start).Seconds())
	}
}

// Evaluated records that the rules of a schema were evaluated for an object, which began at start.
func (e *Expressions) Evaluated(start time.Time) {
	if e != nil {
		e.evaluation.Observe(time.Since(start).Seconds())
	}
}
