package webhook

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// shown is what a client shows of the server's identity.
type shown struct {
	credentials Credentials
	fixed       *tls.Certificate // of bytes

	token watchedFile
	cert  watchedFile
	key   watchedFile

	mu                sync.Mutex
	pair              *tls.Certificate // guarded by mu; of the files when they had these texts
	certText, keyText []byte           // guarded by mu
}

func newShown(c Credentials) (*shown, error) {
	s := &shown{
		credentials: c, token: watchedFile{path: c.TokenFile}, cert: watchedFile{path: c.CertificateFile},
		key: watchedFile{path: c.KeyFile},
	}
	if c.CertificateFile == "" && len(c.Certificate) > 0 {
		pair, err := tls.X509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate for a webhook: %w", err)
		}
		s.fixed = &pair
	}
	if c.CertificateFile != "" {
		if _, err := s.certificate(nil); err != nil {
			return nil, err
		}
	}
	if c.TokenFile != "" {
		if _, err := s.token.read(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *shown) authorize(r *http.Request) error {
	c := s.credentials
	token := c.Token
	if c.TokenFile != "" {
		text, err := s.token.read()
		if err != nil {
			return err
		}
		token = strings.TrimSpace(string(text))
	}
	switch {
	case token != "":
		r.Header.Set("Authorization", "Bearer "+token)
	case c.Username != "" || c.Password != "":
		r.SetBasicAuth(c.Username, c.Password)
	}
	return nil
}

// certificate is for tls.Config.GetClientCertificate.
func (s *shown) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if s.fixed != nil {
		return s.fixed, nil
	}
	if s.credentials.CertificateFile == "" {
		return &tls.Certificate{}, nil
	}
	cert, err := s.cert.read()
	if err != nil {
		return nil, err
	}
	key, err := s.key.read()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair != nil && bytes.Equal(cert, s.certText) && bytes.Equal(key, s.keyText) {
		return s.pair, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		if s.pair != nil {
			return s.pair, nil // one of the files is newer than the other
		}
		return nil, fmt.Errorf("certificate for a webhook: %w", err)
	}
	s.pair, s.certText, s.keyText = &pair, cert, key
	return s.pair, nil
}

// A watchedFile is read again when it was changed, at most once a second.
type watchedFile struct {
	path string

	mu       sync.Mutex
	looked   time.Time // guarded by mu
	modified time.Time // guarded by mu
	text     []byte    // guarded by mu
}

// read returns the text, which is what it last was while the file is away.
func (f *watchedFile) read() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.text != nil && now.Sub(f.looked) < time.Second {
		return f.text, nil
	}
	f.looked = now
	info, err := os.Stat(f.path)
	if err == nil && (f.text == nil || !info.ModTime().Equal(f.modified)) {
		var text []byte
		if text, err = os.ReadFile(f.path); err == nil {
			f.text, f.modified = text, info.ModTime()
		}
	}
	if f.text == nil {
		return nil, err
	}
	return f.text, nil
}
