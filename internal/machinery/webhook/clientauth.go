package webhook

import (
	"crypto/tls"
	"fmt"
	"net/http"
)

// clientAuth authenticates the server to one webhook.
type clientAuth struct {
	credentials Credentials
	pair        *tls.Certificate // nil if there is no certificate
}

func newClientAuth(c Credentials) (*clientAuth, error) {
	a := &clientAuth{credentials: c}
	if len(c.Certificate) > 0 {
		pair, err := tls.X509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate for a webhook: %w", err)
		}
		a.pair = &pair
	}
	return a, nil
}

func (a *clientAuth) authorize(r *http.Request) {
	switch c := &a.credentials; {
	case c.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.Token)
	case c.Username != "" || c.Password != "":
		r.SetBasicAuth(c.Username, c.Password)
	}
}

// certificate implements tls.Config.GetClientCertificate.
func (a *clientAuth) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if a.pair == nil {
		return &tls.Certificate{}, nil
	}
	return a.pair, nil
}
