package egress

import (
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// Metrics count the connections through proxies, with the names and labels of kube-apiserver.
type Metrics struct {
	starts, failures *prometheus.CounterVec
	durations        *prometheus.HistogramVec
}

// NewMetrics returns metrics without time series before the first connection.
func NewMetrics() *Metrics {
	options := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "apiserver", Subsystem: "egress_dialer", Name: name, Help: "[ALPHA] " + help}
	}
	labels := []string{"protocol", "transport"}
	return &Metrics{
		starts: prometheus.NewCounterVec(options("dial_start_total",
			"Dial starts, labeled by the protocol (http-connect or grpc) and transport (tcp or uds)."), labels),
		failures: prometheus.NewCounterVec(options("dial_failure_count",
			"Dial failure count, labeled by the protocol (http-connect or grpc), transport (tcp or uds), and stage "+
				"(connect or proxy). The stage indicates at which stage the dial failed"),
			append(labels, "stage")),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "apiserver", Subsystem: "egress_dialer", Name: "dial_duration_seconds",
			Help: "[ALPHA] Dial latency histogram in seconds, labeled by the protocol (http-connect or grpc), " +
				"transport (tcp or uds)",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 2.5, 12.5},
		}, labels),
	}
}

// Collectors returns the metrics for registration.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.starts, m.failures, m.durations}
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
