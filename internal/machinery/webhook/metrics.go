package webhook

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics count servers whose certificates have no SAN or a SHA-1 signature, which clients refuse or will refuse soon.
// Metrics of NewMetrics also count calls. A nil *Metrics records nothing.
type Metrics struct {
	metrics.Set

	missingSAN, sha1 prometheus.Counter
	calls            *callMetrics // nil if calls are not counted
}

// callMetrics are kube-apiserver's metrics of HTTP clients. The label host contains the host and port of the webhook's URL.
type callMetrics struct {
	total                       *prometheus.CounterVec
	seconds, sent, receivedSize *prometheus.HistogramVec
}

// NewMetrics returns the metrics of webhooks under the names of kube-apiserver.
func NewMetrics() *Metrics {
	m := NewCertificateMetrics("webhooks")
	sizes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	m.calls = &callMetrics{
		total: m.Counters("rest_client_requests_total",
			"[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.", "code", "method", "host"),
		seconds: m.Histograms("rest_client_request_duration_seconds",
			"[ALPHA] Request latency in seconds. Broken down by verb, and host.",
			[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host"),
		sent: m.Histograms("rest_client_request_size_bytes",
			"[ALPHA] Request size in bytes. Broken down by verb and host.", sizes, "verb", "host"),
		receivedSize: m.Histograms("rest_client_response_size_bytes",
			"[ALPHA] Response size in bytes. Broken down by verb and host.", sizes, "verb", "host"),
	}
	return m
}

// Called records a call with POST that began at start. code is 0 if there was no response.
func (m *Metrics) Called(host string, code int, start time.Time, sent, received int) {
	if m == nil || m.calls == nil {
		return
	}
	label := "<error>"
	if code != 0 {
		label = strconv.Itoa(code)
		m.calls.receivedSize.WithLabelValues(http.MethodPost, host).Observe(float64(received))
	}
	m.calls.total.WithLabelValues(label, http.MethodPost, host).Inc()
	m.calls.seconds.WithLabelValues(http.MethodPost, host).Observe(time.Since(start).Seconds())
	m.calls.sent.WithLabelValues(http.MethodPost, host).Observe(float64(sent))
}

// NewCertificateMetrics returns metrics of certificates alone. part is in their names: "webhooks" or "kube_aggregator".
func NewCertificateMetrics(part string) *Metrics {
	m := &Metrics{}
	stage := "[ALPHA]"
	if part == "webhooks" {
		stage = "[BETA]"
	}
	m.missingSAN = m.Counter("apiserver_"+part+"_x509_missing_san_total",
		stage+" Counts the number of requests to servers missing SAN extension in their serving certificate OR the "+
			"number of connection failures due to the lack of x509 certificate SAN extension missing (either/or, based on "+
			"the runtime environment)")
	m.sha1 = m.Counter("apiserver_"+part+"_x509_insecure_sha1_total",
		stage+" Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR "+
			"the number of connection failures due to the insecure SHA1 signatures (either/or, based on the runtime "+
			"environment)")
	return m
}

// Observe counts a response whose certificates have no SAN or a SHA-1 signature, or an error that has this cause.
func (m *Metrics) Observe(r *http.Response, err error) {
	switch {
	case m == nil:
	case err != nil:
		var name x509.HostnameError
		if errors.As(err, &name) && strings.Contains(err.Error(), "certificate relies on legacy Common Name field") {
			m.missingSAN.Inc()
		}
		var authority x509.UnknownAuthorityError
		if _, why, found := strings.Cut(err.Error(), "x509: cannot verify signature: insecure algorithm"); found &&
			strings.Contains(why, "SHA1") && errors.As(err, &authority) {
			m.sha1.Inc()
		}
	case r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		if leaf := r.TLS.PeerCertificates[0]; !hasSAN(leaf) {
			m.missingSAN.Inc()
		}
		for _, c := range r.TLS.PeerCertificates {
			weak := c.SignatureAlgorithm == x509.SHA1WithRSA || c.SignatureAlgorithm == x509.ECDSAWithSHA1
			if weak && string(c.RawIssuer) != string(c.RawSubject) {
				m.sha1.Inc()
				break
			}
		}
	}
}

// hasSAN reports whether a certificate has the extension subjectAltName (RFC 5280, 4.2.1.6).
func hasSAN(c *x509.Certificate) bool {
	return slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal([]int{2, 5, 29, 17}) })
}
