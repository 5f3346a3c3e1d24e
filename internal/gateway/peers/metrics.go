package peers

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics are the metrics of Peers under the names of kube-apiserver. They are a prometheus.Collector.
type Metrics struct {
	*metrics.Set

	requests, proxyErrors, syncErrors *prometheus.CounterVec
}

func newMetrics() *Metrics {
	s := new(metrics.Set)
	return &Metrics{
		Set: s,
		requests: s.Counters("apiserver_rerouted_request_total", "[ALPHA] Total number of requests that were proxied "+
			"to a peer kube-apiserver because the local apiserver was not capable of serving it, broken down by "+
			"'group', 'version', and 'resource' indicating the GVR of the request. If all three are empty (\"\"), the "+
			"request is a discovery request.", "code", "group", "version", "resource"),
		proxyErrors: s.Counters("apiserver_peer_proxy_errors_total", "[ALPHA] Total number of errors encountered "+
			"while proxying requests to a peer kube apiserver", "type", "group", "version", "resource"),
		syncErrors: s.Counters("apiserver_peer_discovery_sync_errors_total", "[ALPHA] Total number of errors "+
			"encountered while syncing discovery information from a peer kube-apiserver", "type"),
	}
}

// rerouted counts a request. The labels come from the document of a peer, never from the request.
func (m *Metrics) rerouted(status int, group, version, resource string) {
	m.requests.WithLabelValues(strconv.Itoa(status), group, version, resource).Inc()
}
