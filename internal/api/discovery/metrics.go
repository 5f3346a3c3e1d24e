package discovery

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of a Handler under the names of kube-apiserver. They are a prometheus.Collector.
type Metrics struct{ noPeers, hits, misses prometheus.Counter }

func newMetrics() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "aggregator_discovery_" + name, Help: "[ALPHA] " + help})
	}
	return &Metrics{
		noPeers: counter("nopeer_requests_total",
			"Counter of number of times no-peer (non peer-aggregated) discovery was requested"),
		hits: counter("peer_aggregated_cache_hits_total",
			"Counter of number of times discovery was served from peer-aggregated cache"),
		misses: counter("peer_aggregated_cache_misses_total",
			"Counter of number of times discovery was aggregated across all API servers"),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.noPeers.Collect(ch)
	m.hits.Collect(ch)
	m.misses.Collect(ch)
}
