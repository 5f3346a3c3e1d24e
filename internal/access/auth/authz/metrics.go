package authz

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of authorizers and of their configuration.
type Metrics struct {
	*metrics.ConfigReloads

	decisions *prometheus.CounterVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	return &Metrics{
		decisions: m.Counters("apiserver_authorization_decisions_total", "[ALPHA] Total number of terminal decisions "+
			"made by an authorizer split by authorizer type, name, and decision.", "type", "name", "decision"),
		ConfigReloads: metrics.NewConfigReloads(m, "authorization"),
	}
}

// Decision returns the counter of one authorizer's decisions: allowed or denied.
func (m *Metrics) Decision(kind, name, decision string) prometheus.Counter {
	return m.decisions.WithLabelValues(kind, name, decision)
}
