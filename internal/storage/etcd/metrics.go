package etcd

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of the gRPC client of an etcd cluster. It is a Recorder.
type Metrics struct {
	started, sent, received, handled *prometheus.CounterVec
	leases                           prometheus.Histogram
}

// NewMetrics registers and returns the metrics of a client of etcd. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	return &Metrics{
		started: m.Counters("grpc_client_started_total", "Total number of RPCs started on the client.", labels...),
		sent: m.Counters("grpc_client_msg_sent_total",
			"Total number of gRPC stream messages sent by the client.", labels...),
		received: m.Counters("grpc_client_msg_received_total",
			"Total number of RPC stream messages received by the client.", labels...),
		handled: m.Counters("grpc_client_handled_total", "Total number of RPCs completed by the client, regardless of "+
			"success or failure.", append(labels, "grpc_code")...),
		leases: m.Histogram("etcd_lease_object_counts", "[ALPHA] Number of objects attached to a single etcd lease.",
			[]float64{10, 50, 100, 500, 1000, 2500, 5000}),
	}
}

// CallStarted counts a call.
func (m *Metrics) CallStarted(kind, method string) { countCall(m.started, kind, method) }

// MessageSent counts a message to etcd.
func (m *Metrics) MessageSent(kind, method string) { countCall(m.sent, kind, method) }

// MessageReceived counts a message from etcd.
func (m *Metrics) MessageReceived(kind, method string) { countCall(m.received, kind, method) }

// CallEnded counts the end of a call, by the name of its gRPC code.
func (m *Metrics) CallEnded(kind, method, code string) { countCall(m.handled, kind, method, code) }

// LeaseFull records the number of keys of a lease.
func (m *Metrics) LeaseFull(keys int) { m.leases.Observe(float64(keys)) }

// countCall counts a call of a method such as /etcdserverpb.KV/Txn.
func countCall(v *prometheus.CounterVec, kind, method string, more ...string) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	v.WithLabelValues(append([]string{kind, service, name}, more...)...).Inc()
}
