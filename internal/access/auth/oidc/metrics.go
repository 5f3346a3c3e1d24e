package oidc

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of tokens of trusted issuers, and of the AuthenticationConfiguration.
type Metrics struct {
	latency  *prometheus.HistogramVec
	reloads  *prometheus.CounterVec
	reloaded *prometheus.GaugeVec
	config   *prometheus.GaugeVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	a := &Metrics{}
	a.latency = m.Histograms("apiserver_authentication_jwt_authenticator_latency_seconds",
		"[ALPHA] Latency of jwt authentication operations in seconds. This is the time spent authenticating a token "+
			"for cache miss only (i.e. when the token is not found in the cache).",
		[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "result", "jwt_issuer_hash")
	a.reloads = m.Counters("apiserver_authentication_config_controller_automatic_reloads_total",
		"[BETA] Total number of automatic reloads of authentication configuration split by status and apiserver "+
			"identity.", "status", "apiserver_id_hash")
	a.reloaded = m.Gauges("apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
		"[BETA] Timestamp of the last automatic reload of authentication configuration split by status and apiserver "+
			"identity.", "status", "apiserver_id_hash")
	a.config = m.Gauges("apiserver_authentication_config_controller_last_config_info",
		"[ALPHA] Information about the last applied authentication configuration with hash as label, split by "+
			"apiserver identity.", "apiserver_id_hash", "hash")
	return a
}

// Token records the time for checking a token. The label is a hash of the issuer.
func (a *Metrics) Token(issuer string, ok bool, took time.Duration) {
	hash := sha256.Sum256([]byte(issuer))
	a.latency.WithLabelValues(metrics.Status(ok), "sha256:"+hex.EncodeToString(hash[:])).Observe(took.Seconds())
}

// Loaded records the authentication configuration in use, by hashes of the server's identity and of the configuration.
func (a *Metrics) Loaded(server, config string) {
	a.config.Reset()
	a.config.WithLabelValues(server, config).Set(1)
}

// Reloaded counts a reload of the authentication configuration, successful or not. config is only used if it was
// successful.
func (a *Metrics) Reloaded(ok bool, server, config string) {
	a.reloads.WithLabelValues(metrics.Status(ok), server).Inc()
	a.reloaded.WithLabelValues(metrics.Status(ok), server).SetToCurrentTime()
	if ok {
		a.Loaded(server, config)
	}
}
