package x509

import (
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metric of the remaining lifetimes of client certificates. It returns Authenticator.Observe. It
// may be called once.
func NewMetrics(m *metrics.Metrics) func(remaining time.Duration) {
	lifetimes := m.Histogram("apiserver_client_certificate_expiration_seconds",
		"[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
		[]float64{0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000})
	return func(remaining time.Duration) { lifetimes.Observe(max(remaining.Seconds(), 0)) }
}
