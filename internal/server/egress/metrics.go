package egress

import (
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// Metrics count the connections through proxies, with the names and labels of kube-apiserver.
type Metrics struct {
	starts, failures *prometheus.CounterVec
	durations        *prometheus.HistogramVec
}

// NewMetrics registers and returns the metrics. They have no series before the first connection. Call it only
// once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	return &Metrics{
		starts: m.Counters("apiserver_egress_dialer_dial_start_total", "[ALPHA] Dial starts, labeled by the protocol "+
			"(http-connect or grpc) and transport (tcp or uds).", "protocol", "transport"),
		failures: m.Counters("apiserver_egress_dialer_dial_failure_count", "[ALPHA] Dial failure count, labeled by "+
			"the protocol (http-connect or grpc), transport (tcp or uds), and stage (connect or proxy). The stage "+
			"indicates at which stage the dial failed", "protocol", "transport", "stage"),
		durations: m.Histograms("apiserver_egress_dialer_dial_duration_seconds",
			"[ALPHA] Dial latency histogram in seconds, labeled by the protocol (http-connect or grpc), transport "+
				"(tcp or uds)", []float64{0.005, 0.025, 0.1, 0.5, 2.5, 12.5}, "protocol", "transport"),
	}
}

// measuredDialer returns a function that opens connections through a proxy and counts them.
func (m *Metrics) measuredDialer(p proxy, protocol, transport string) webhook.DialFunc {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		start := time.Now()
		m.starts.WithLabelValues(protocol, transport).Inc()
		through, err := p.connect(ctx)
		if err != nil {
			m.failures.WithLabelValues(protocol, transport, "connect").Inc()
			return nil, err
		}
		conn, err := through(ctx, address)
		if err != nil {
			m.failures.WithLabelValues(protocol, transport, "proxy").Inc()
			return nil, err
		}
		m.durations.WithLabelValues(protocol, transport).Observe(time.Since(start).Seconds())
		return conn, nil
	}
}
