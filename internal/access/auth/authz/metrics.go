package authz

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of authorizers and of their configuration.
type Metrics struct {
	decisions  *prometheus.CounterVec
	reloads    *prometheus.CounterVec
	reloadTime *prometheus.GaugeVec
	reloadInfo *prometheus.GaugeVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	return &Metrics{
		decisions: m.Counters("apiserver_authorization_decisions_total", "[ALPHA] Total number of terminal decisions "+
			"made by an authorizer split by authorizer type, name, and decision.", "type", "name", "decision"),
		reloads: m.Counters("apiserver_authorization_config_controller_automatic_reloads_total",
			"[BETA] Total number of automatic reloads of authorization configuration split by status and apiserver "+
				"identity.", "status", "apiserver_id_hash"),
		reloadTime: m.Gauges("apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
			"[BETA] Timestamp of the last automatic reload of authorization configuration split by status and "+
				"apiserver identity.", "status", "apiserver_id_hash"),
		reloadInfo: m.Gauges("apiserver_authorization_config_controller_last_config_info",
			"[ALPHA] Information about the last applied authorization configuration with hash as label, split by "+
				"apiserver identity.", "apiserver_id_hash", "hash"),
	}
}

// Decision returns the counter of one authorizer's decisions: allowed or denied.
func (a *Metrics) Decision(kind, name, decision string) prometheus.Counter {
	return a.decisions.WithLabelValues(kind, name, decision)
}

// Reloaded counts a reload of the authorization configuration. server and config are hashes of the server's identity and, if
// the reload succeeded, of the file.
func (a *Metrics) Reloaded(ok bool, server, config string) {
	if ok {
		a.Loaded(server, config)
	}
	a.reloads.WithLabelValues(metrics.Status(ok), server).Inc()
	a.reloadTime.WithLabelValues(metrics.Status(ok), server).SetToCurrentTime()
}

// Loaded records the authorization configuration in use, by the same hashes.
func (a *Metrics) Loaded(server, config string) {
	a.reloadInfo.Reset()
	a.reloadInfo.WithLabelValues(server, config).Set(1)
}
