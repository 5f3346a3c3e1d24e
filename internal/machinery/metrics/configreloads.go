package metrics

import "github.com/prometheus/client_golang/prometheus"

// ConfigReloads has kube-apiserver's metrics about the reloads of a structured configuration file.
type ConfigReloads struct {
	total      *prometheus.CounterVec
	last, info *prometheus.GaugeVec
}

// NewConfigReloads registers and returns the metrics of a part of the server: "authentication" or "authorization". It may
// be called once for each.
func NewConfigReloads(m *Metrics, part string) *ConfigReloads {
	prefix := "apiserver_" + part + "_config_controller_"
	return &ConfigReloads{
		total: m.Counters(prefix+"automatic_reloads_total", "[BETA] Total number of automatic reloads of "+part+
			" configuration split by status and apiserver identity.", "status", "apiserver_id_hash"),
		last: m.Gauges(prefix+"automatic_reload_last_timestamp_seconds", "[BETA] Timestamp of the last automatic reload of "+
			part+" configuration split by status and apiserver identity.", "status", "apiserver_id_hash"),
		info: m.Gauges(prefix+"last_config_info", "[ALPHA] Information about the last applied "+part+
			" configuration with hash as label, split by apiserver identity.", "apiserver_id_hash", "hash"),
	}
}

// Loaded records the configuration in use, by hashes of the server's identity and of the file.
func (c *ConfigReloads) Loaded(server, config string) {
	c.info.Reset()
	c.info.WithLabelValues(server, config).Set(1)
}

// Reloaded counts a reload, successful or not. config is only used if it was successful.
func (c *ConfigReloads) Reloaded(ok bool, server, config string) {
	c.total.WithLabelValues(Status(ok), server).Inc()
	c.last.WithLabelValues(Status(ok), server).SetToCurrentTime()
	if ok {
		c.Loaded(server, config)
	}
}
