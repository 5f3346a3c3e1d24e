package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the counters of auditing.
type Metrics struct {
	events, rejected prometheus.Counter
	errors, levels   *prometheus.CounterVec
}

// NewMetrics registers and returns the counters of auditing. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	a := &Metrics{
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
	m.Register(a.events, a.rejected, a.errors, a.levels)
	return a
}

// Event counts an event.
func (a *Metrics) Event() { a.events.Inc() }

// Rejected counts a request that failed because its event could not be stored.
func (a *Metrics) Rejected() { a.rejected.Inc() }

// Error counts events that a part of a sink could not handle.
func (a *Metrics) Error(part string, events int) { a.errors.WithLabelValues(part).Add(float64(events)) }

// Level counts a request by its audit level.
func (a *Metrics) Level(level string) { a.levels.WithLabelValues(level).Inc() }
