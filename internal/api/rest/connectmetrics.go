package rest

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// connectMetrics is the ConnectObserver of a server.
type connectMetrics struct {
	translated, tunneled, webSockets, logs *prometheus.CounterVec
	logTLSFailures                         prometheus.Counter
}

// NewConnectMetrics registers and returns the metrics of connections. It may be called once.
func NewConnectMetrics(m *metrics.Metrics) ConnectObserver {
	return &connectMetrics{
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

// WebSocket counts a request to exec, attach or portforward.
func (c *connectMetrics) WebSocket(subresource string, translated bool) {
	how := "proxied_to_kubelet"
	if translated {
		how = "translated_at_apiserver"
	}
	c.webSockets.WithLabelValues(subresource, how).Inc()
}

// Translated counts a WebSocket whose streams were translated to SPDY.
func (c *connectMetrics) Translated(status int) {
	c.translated.WithLabelValues(connectCode(status)).Inc()
}

// Tunneled counts a WebSocket with SPDY in it.
func (c *connectMetrics) Tunneled(status int) { c.tunneled.WithLabelValues(connectCode(status)).Inc() }

// connectCode returns the label of a status. A kubelet may answer any number.
func connectCode(status int) string {
	if status < 100 || status > 599 {
		return "unknown"
	}
	return strconv.Itoa(status)
}

// Log counts a request for a log.
func (c *connectMetrics) Log(unverified bool) {
	usage := "enforce_tls"
	if unverified {
		usage = "skip_tls_allowed"
	}
	c.logs.WithLabelValues(usage).Inc()
}

// LogFailed counts err if it is about the certificate of a kubelet.
func (c *connectMetrics) LogFailed(err error) {
	if strings.Contains(err.Error(), "x509:") {
		c.logTLSFailures.Inc()
	}
}
