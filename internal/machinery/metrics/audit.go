package metrics

import "github.com/prometheus/client_golang/prometheus"

// Audit has the counters of auditing.
type Audit struct {
	events, rejected prometheus.Counter
	errors, levels   *prometheus.CounterVec
}

// NewAudit registers and returns the counters of auditing. It may be called once.
func (m *Metrics) NewAudit() *Audit {
	a := &Audit{
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_event_total", Help: "[ALPHA] Counter of audit events generated and sent to the audit " +
				"backend.",
		}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_requests_rejected_total", Help: "[ALPHA] Counter of apiserver requests rejected due " +
				"to an error in audit logging backend.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_error_total",
			Help: "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin " +
				"affected by the error.",
		}, []string{"plugin"}),
		levels: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_level_total", Help: "[ALPHA] Counter of policy levels for audit events (1 per request).",
		}, []string{"level"}),
	}
	m.registry.MustRegister(a.events, a.rejected, a.errors, a.levels)
	return a
}

// Event counts an event.
func (a *Audit) Event() { a.events.Inc() }

// Rejected counts a request that failed because its event could not be stored.
func (a *Audit) Rejected() { a.rejected.Inc() }

// Error counts events that a part of a sink could not handle.
func (a *Audit) Error(part string, events int) { a.errors.WithLabelValues(part).Add(float64(events)) }

// Level counts a request by its audit level.
func (a *Audit) Level(level string) { a.levels.WithLabelValues(level).Inc() }
