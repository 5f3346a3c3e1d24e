package webhook

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count the servers that are called and whose certificates are of a form that is no longer
// accepted, or soon will not be. They are a prometheus.Collector.
type Metrics struct {
	missingSAN, sha1 prometheus.Counter
}

// NewMetrics returns the metrics of webhooks under the names of kube-apiserver.
func NewMetrics() *Metrics { return NewCertificateMetrics("webhooks") }

// NewCertificateMetrics returns the metrics of the servers that a part of kube-apiserver calls: "webhooks" or
// "kube_aggregator".
func NewCertificateMetrics(part string) *Metrics {
	return &Metrics{
		missingSAN: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_" + part + "_x509_missing_san_total",
			Help: "[ALPHA] Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection failures due to the lack of x509 certificate SAN extension missing (either/or, based on the runtime environment)",
		}),
		sha1: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_" + part + "_x509_insecure_sha1_total",
			Help: "[ALPHA] Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of connection failures due to the insecure SHA1 signatures (either/or, based on the runtime environment)",
		}),
	}
}

// Describe is of prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.missingSAN.Describe(ch)
	m.sha1.Describe(ch)
}

// Collect is of prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.missingSAN.Collect(ch)
	m.sha1.Collect(ch)
}

// Observe looks at the certificates of a response, or at the reason why there is none.
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

// hasSAN looks for subjectAltName (RFC 5280, 4.2.1.6).
func hasSAN(c *x509.Certificate) bool {
	for _, e := range c.Extensions {
		if e.Id.Equal([]int{2, 5, 29, 17}) {
			return true
		}
	}
	return false
}
