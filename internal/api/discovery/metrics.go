package discovery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics are the metrics of a Handler under the names of kube-apiserver. They are a prometheus.Collector.
type Metrics struct {
	*metrics.Set

	noPeers, hits, misses prometheus.Counter
}

func newMetrics() *Metrics {
	s := new(metrics.Set)
	return &Metrics{
		Set: s,
		noPeers: s.Counter("aggregator_discovery_nopeer_requests_total",
			"[ALPHA] Counter of number of times no-peer (non peer-aggregated) discovery was requested"),
		hits: s.Counter("aggregator_discovery_peer_aggregated_cache_hits_total",
			"[ALPHA] Counter of number of times discovery was served from peer-aggregated cache"),
		misses: s.Counter("aggregator_discovery_peer_aggregated_cache_misses_total",
			"[ALPHA] Counter of number of times discovery was aggregated across all API servers"),
	}
}
