package webhook

import (
	"crypto/tls"
	"fmt"
	"net/http"
)

// shown is what a client shows of the server's identity.
type shown struct {
	credentials Credentials
	pair        *tls.Certificate // nil if there is no certificate
}

func newShown(c Credentials) (*shown, error) {
	s := &shown{credentials: c}
	if len(c.Certificate) > 0 {
		pair, err := tls.X509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate for a webhook: %w", err)
		}
		s.pair = &pair
	}
	return s, nil
}

func (s *shown) authorize(r *http.Request) {
	switch c := &s.credentials; {
	case c.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.Token)
	case c.Username != "" || c.Password != "":
		r.SetBasicAuth(c.Username, c.Password)
	}
}

// certificate is for tls.Config.GetClientCertificate.
func (s *shown) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if s.pair == nil {
		return &tls.Certificate{}, nil
	}
	return s.pair, nil
}
