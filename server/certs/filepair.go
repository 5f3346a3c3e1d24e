package certs

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// FilePair is a certificate and its private key in files. The files may be replaced: each new connection takes what they
// contain then.
type FilePair struct {
	certFile, keyFile string

	mu       sync.Mutex   // guards the fields below
	modified [2]time.Time // of the files when they were read
	pair     *tls.Certificate
}

// NewFilePair reads the files, and returns an error if they do not belong together.
func NewFilePair(certFile, keyFile string) (*FilePair, error) {
	p := &FilePair{certFile: certFile, keyFile: keyFile}
	_, err := p.Certificate()
	return p, err
}

// Certificate returns the pair. If the files are replaced one after the other and do not belong together for a moment, it
// returns the pair from before.
func (p *FilePair) Certificate() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var modified [2]time.Time
	for i, name := range []string{p.certFile, p.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return p.last(err)
		}
		modified[i] = info.ModTime()
	}
	if p.pair != nil && modified == p.modified {
		return p.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return p.last(err)
	}
	p.pair, p.modified = &pair, modified
	return p.pair, nil
}

// last returns the pair that was read last, or an error if there is none. mu is held.
func (p *FilePair) last(err error) (*tls.Certificate, error) {
	if p.pair != nil {
		return p.pair, nil
	}
	return nil, fmt.Errorf("certificate %s: %w", p.certFile, err)
}
