package rest

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// ConnectMetrics counts connections to pods.
type ConnectMetrics struct {
	translated, tunneled, webSockets, logs *prometheus.CounterVec
	logTLSFailures                         prometheus.Counter
}

// NewConnectMetrics registers and returns the metrics of connections. It may be called once.
func NewConnectMetrics(m *metrics.Metrics) *ConnectMetrics {
	return &ConnectMetrics{
		translated: m.Counters("apiserver_stream_translator_requests_total", "[ALPHA] Total number of requests that "+
			"were handled by the StreamTranslatorProxy, which processes streaming RemoteCommand/V5", "code"),
		tunneled: m.Counters("apiserver_stream_tunnel_requests_total", "[ALPHA] Total number of requests that were "+
			"handled by the StreamTunnelProxy, which processes streaming PortForward/V2", "code"),
		webSockets: m.Counters("apiserver_websocket_streaming_requests_total",
			"[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) routed by the API server, "+
				"partitioned by subresource and by whether the request was proxied to the kubelet or translated at "+
				"the API server.", "subresource", "proxy_type"),
		logs: m.Counters("kube_apiserver_pod_logs_insecure_backend_total", "[ALPHA] Total number of requests for "+
			"pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied", "usage"),
		logTLSFailures: m.Counter("kube_apiserver_pod_logs_backend_tls_failure_total",
			"[ALPHA] Total number of requests for pods/logs that failed due to kubelet server TLS verification"),
	}
}

// webSocket counts a request to exec, attach or portforward. translated means that this server translates WebSockets for
// the kubelet.
func (c *ConnectMetrics) webSocket(subresource string, translated bool) {
	how := "proxied_to_kubelet"
	if translated {
		how = "translated_at_apiserver"
	}
	c.webSockets.WithLabelValues(subresource, how).Inc()
}

// byCode returns a function that counts WebSockets by their final status. A status that is not an HTTP status
// counts as unknown, because a kubelet may send any number.
func byCode(count *prometheus.CounterVec) func(status int) {
	return func(status int) {
		code := "unknown"
		if status >= 100 && status <= 599 {
			code = strconv.Itoa(status)
		}
		count.WithLabelValues(code).Inc()
	}
}

// log counts a request for a log; unverified means that the certificate of the kubelet is not verified.
func (c *ConnectMetrics) log(unverified bool) {
	usage := "enforce_tls"
	if unverified {
		usage = "skip_tls_allowed"
	}
	c.logs.WithLabelValues(usage).Inc()
}

// logFailed counts the error of a request to a kubelet if it is about the certificate. The text is compared, as
// in kube-apiserver: the errors of package x509 have no common type.
func (c *ConnectMetrics) logFailed(err error) {
	if strings.Contains(err.Error(), "x509:") {
		c.logTLSFailures.Inc()
	}
}
