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
	return &Metrics{
		events: m.Counter("apiserver_audit_event_total",
			"[ALPHA] Counter of audit events generated and sent to the audit backend."),
		rejected: m.Counter("apiserver_audit_requests_rejected_total",
			"[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend."),
		errors: m.Counters("apiserver_audit_error_total", "[ALPHA] Counter of audit events that failed to be audited "+
			"properly. Plugin identifies the plugin affected by the error.", "plugin"),
		levels: m.Counters("apiserver_audit_level_total",
			"[ALPHA] Counter of policy levels for audit events (1 per request).", "level"),
	}
}

// Event counts an event.
func (m *Metrics) Event() { m.events.Inc() }

// Rejected counts a request that failed because its event could not be stored.
func (m *Metrics) Rejected() { m.rejected.Inc() }

// Error counts events that a part of a sink could not handle.
func (m *Metrics) Error(part string, events int) { m.errors.WithLabelValues(part).Add(float64(events)) }

// Level counts a request by its audit level.
func (m *Metrics) Level(level string) { m.levels.WithLabelValues(level).Inc() }
