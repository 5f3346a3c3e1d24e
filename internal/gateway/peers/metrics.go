package peers

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of Peers under the names of kube-apiserver. They are a prometheus.Collector.
type Metrics struct {
	requests, proxyErrors, syncErrors *prometheus.CounterVec
}

func newMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_rerouted_request_total",
			Help: "[ALPHA] Total number of requests that were proxied to a peer kube-apiserver because the local apiserver was " +
				"not capable of serving it, broken down by 'group', 'version', and 'resource' indicating the GVR of the request. " +
				"If all three are empty (\"\"), the request is a discovery request.",
		}, []string{"code", "group", "version", "resource"}),
		proxyErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_peer_proxy_errors_total",
			Help: "[ALPHA] Total number of errors encountered while proxying requests to a peer kube apiserver",
		}, []string{"type", "group", "version", "resource"}),
		syncErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_peer_discovery_sync_errors_total",
			Help: "[ALPHA] Total number of errors encountered while syncing discovery information from a peer kube-apiserver",
		}, []string{"type"}),
	}
}

// rerouted counts a request. The labels come from the document of a peer, never from the request.
func (m *Metrics) rerouted(status int, group, version, resource string) {
	m.requests.WithLabelValues(strconv.Itoa(status), group, version, resource).Inc()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.Describe(ch)
	m.proxyErrors.Describe(ch)
	m.syncErrors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.requests.Collect(ch)
	m.proxyErrors.Collect(ch)
	m.syncErrors.Collect(ch)
}
