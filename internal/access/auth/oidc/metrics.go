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
	*metrics.ConfigReloads

	latency *prometheus.HistogramVec
}

// NewMetrics registers and returns the metrics. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	return &Metrics{
		ConfigReloads: metrics.NewConfigReloads(m, "authentication"),
		latency: m.Histograms("apiserver_authentication_jwt_authenticator_latency_seconds",
			"[ALPHA] Latency of jwt authentication operations in seconds. This is the time spent authenticating a token "+
				"for cache miss only (i.e. when the token is not found in the cache).",
			[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "result", "jwt_issuer_hash"),
	}
}

// Token records the time for checking a token. The label is a hash of the issuer.
func (m *Metrics) Token(issuer string, ok bool, took time.Duration) {
	hash := sha256.Sum256([]byte(issuer))
	m.latency.WithLabelValues(metrics.Status(ok), "sha256:"+hex.EncodeToString(hash[:])).Observe(took.Seconds())
}
