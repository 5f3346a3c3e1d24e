package serviceallocator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of the allocation of addresses and node ports for Services. A nil Metrics records nothing.
type Metrics struct {
	addresses, addressErrors *prometheus.CounterVec
	addressSeconds           *prometheus.HistogramVec
	ports, portErrors        *prometheus.CounterVec
	repairErrors             map[bool]prometheus.Counter // of addresses (true) and of ports
}

// AllocatedRange is the usage of a range of addresses.
type AllocatedRange struct {
	CIDR                 string
	Allocated, Available uint64
}

// NewMetrics registers and returns the metrics of Services. It may be called once. usage returns the ranges of addresses
// and the numbers of node ports that are in use and free; it is called when metrics are read.
func NewMetrics(m *metrics.Metrics, usage func() (ranges []AllocatedRange, portsUsed, portsFree int)) *Metrics {
	const prefix = "kube_apiserver_"
	s := &Metrics{
		addresses: m.Counters(prefix+"clusterip_allocator_allocation_total",
			"[ALPHA] Number of Cluster IPs allocations", "cidr", "scope"),
		addressErrors: m.Counters(prefix+"clusterip_allocator_allocation_errors_total",
			"[ALPHA] Number of errors trying to allocate Cluster IPs", "cidr", "scope"),
		addressSeconds: m.Histograms(prefix+"clusterip_allocator_allocation_duration_seconds",
			"[ALPHA] Duration in seconds to allocate a Cluster IP by ServiceCIDR", prometheus.DefBuckets, "cidr"),
		ports: m.Counters(prefix+"nodeport_allocator_allocation_total",
			"[ALPHA] Number of NodePort allocations", "scope"),
		portErrors: m.Counters(prefix+"nodeport_allocator_allocation_errors_total",
			"[ALPHA] Number of errors trying to allocate NodePort", "scope"),
		repairErrors: map[bool]prometheus.Counter{
			true: m.Counter("apiserver_clusterip_repair_reconcile_errors_total",
				"[ALPHA] Number of reconciliation failures on the clusterip repair reconcile loop"),
			false: m.Counter("apiserver_nodeport_repair_reconcile_errors_total",
				"[ALPHA] Number of reconciliation failures on the nodeport repair reconcile loop"),
		},
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	used := gauge("clusterip_allocator_allocated_ips", "[ALPHA] Gauge measuring the number of allocated IPs for Services", "cidr")
	free := gauge("clusterip_allocator_available_ips", "[ALPHA] Gauge measuring the number of available IPs for Services", "cidr")
	usedPorts := gauge("nodeport_allocator_allocated_ports", "[ALPHA] Gauge measuring the number of allocated NodePorts for Services")
	freePorts := gauge("nodeport_allocator_available_ports", "[ALPHA] Gauge measuring the number of available NodePorts for Services")
	m.Register(metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
		ranges, portsUsed, portsFree := usage()
		for _, r := range ranges {
			gauge(used, int64(r.Allocated), r.CIDR) //nolint:gosec // a range has fewer addresses in use than that
			gauge(free, int64(min(r.Available, 1<<62)), r.CIDR)
		}
		gauge(usedPorts, int64(portsUsed))
		gauge(freePorts, int64(portsFree))
	}, used, free, usedPorts, freePorts))
	return s
}

// Address records an attempt to allocate an address of a range; ok is false if it failed. chosen reports whether
// the client chose the address.
func (m *Metrics) Address(cidr string, chosen, ok bool, took time.Duration) {
	switch {
	case m == nil:
	case ok:
		m.addresses.WithLabelValues(cidr, scopeOf(chosen)).Inc()
		m.addressSeconds.WithLabelValues(cidr).Observe(took.Seconds())
	default:
		m.addressErrors.WithLabelValues(cidr, scopeOf(chosen)).Inc()
	}
}

// Port records an attempt to allocate a node port; ok is false if it failed. chosen reports whether the client
// chose the port.
func (m *Metrics) Port(chosen, ok bool) {
	switch {
	case m == nil:
	case ok:
		m.ports.WithLabelValues(scopeOf(chosen)).Inc()
	default:
		m.portErrors.WithLabelValues(scopeOf(chosen)).Inc()
	}
}

// RepairFailed records a failed round of the repair of addresses or of ports.
func (m *Metrics) RepairFailed(addresses bool) {
	if m != nil {
		m.repairErrors[addresses].Inc()
	}
}

func scopeOf(chosen bool) string {
	if chosen {
		return "static"
	}
	return "dynamic"
}
