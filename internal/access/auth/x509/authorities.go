package x509

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Authorities are the certificate authorities for verifying client certificates: fixed ones, and those of a file that
// may be replaced while the server runs.
type Authorities struct {
	fixed   []byte // PEM
	path    string // "": no file
	current atomic.Pointer[bundle]
	guard   *overlapGuard // nil: no check for overlap
}

// overlapGuard keeps the authorities of clients and of front proxies from overlapping.
type overlapGuard struct {
	sync.Mutex       // held while one of the two is compared and replaced
	clients, proxies *Authorities
}

// bundle is an immutable version of the authorities.
type bundle struct {
	pool *x509.CertPool
	pem  []byte
}

// NewAuthorities returns the fixed authorities. path is the file of further ones, whose content is passed to Use before
// the first request; "" means none.
func NewAuthorities(fixed []byte, path string) *Authorities {
	a := &Authorities{fixed: fixed, path: path}
	b := &bundle{pool: x509.NewCertPool(), pem: fixed}
	b.pool.AppendCertsFromPEM(fixed)
	a.current.Store(b)
	return a
}

// Use replaces the authorities by the fixed ones and those in content. It returns an error and changes nothing if
// content has no certificates, or if a certificate overlaps with the other Authorities of ForbidOverlap.
func (a *Authorities) Use(content []byte) error {
	b := &bundle{pool: x509.NewCertPool(), pem: bytes.Join([][]byte{a.fixed, content}, nil)}
	if !b.pool.AppendCertsFromPEM(content) {
		return fmt.Errorf("%s has no certificates", a.path)
	}
	b.pool.AppendCertsFromPEM(a.fixed)
	if a.guard != nil {
		a.guard.Lock()
		defer a.guard.Unlock()
		if a.guard.wouldOverlap(a, b) {
			return fmt.Errorf("%s: %w", a.path, ErrOverlap)
		}
	}
	a.current.Store(b)
	return nil
}

// ErrOverlap means that a client certificate could be taken for one of a front proxy.
var ErrOverlap = errors.New(
	"the authorities of clients and those of front proxies overlap, so that a client could name any user in headers")

// ForbidOverlap returns ErrOverlap if the two overlap (see Overlap). Otherwise, both will
// refuse later content that overlaps with the other. It must be called before Use is called again.
func ForbidOverlap(clients, proxies *Authorities) error {
	if Overlap(clients.PEM(), proxies.PEM()) {
		return ErrOverlap
	}
	clients.guard = &overlapGuard{clients: clients, proxies: proxies}
	proxies.guard = clients.guard
	return nil
}

// wouldOverlap reports whether the two overlap if b replaces the current content of a.
func (g *overlapGuard) wouldOverlap(a *Authorities, b *bundle) bool {
	if a == g.clients {
		return Overlap(b.pem, g.proxies.PEM())
	}
	return Overlap(g.clients.PEM(), b.pem)
}

// Pool returns the current authorities. Each change makes a new pool.
func (a *Authorities) Pool() *x509.CertPool { return a.current.Load().pool }

// PEM returns the current authorities as PEM text.
func (a *Authorities) PEM() []byte { return a.current.Load().pem }

// Overlap reports whether client certificates could be verified with the authorities of front proxies. This is the case
// if both contain an authority with the same public key, whatever else its certificates contain, or if an authority of
// proxies has issued an authority of clients, because a client can send the latter as an intermediate certificate. The
// opposite is not an overlap: an authority of clients may have issued one that is only for proxies.
func Overlap(clients, proxies []byte) bool {
	ofClients, ofProxies := certificatesOf(clients), certificatesOf(proxies)
	for _, client := range ofClients {
		for _, proxy := range ofProxies {
			if bytes.Equal(keyOf(client), keyOf(proxy)) || issued(proxy, client) {
				return true
			}
		}
	}
	return false
}

// issued reports whether parent has signed child.
func issued(parent, child *x509.Certificate) bool {
	return bytes.Equal(parent.RawSubject, child.RawIssuer) && child.CheckSignatureFrom(parent) == nil
}

// keyOf returns the public key of a certificate in a normalized encoding, because certificates
// may encode the same key differently.
func keyOf(c *x509.Certificate) []byte {
	if key, err := x509.MarshalPKIXPublicKey(c.PublicKey); err == nil {
		return key
	}
	return c.RawSubjectPublicKeyInfo // an unknown algorithm: nothing can be verified with it
}

// certificatesOf returns the certificates in PEM text. Like x509.CertPool, it leaves out those
// that it cannot parse.
func certificatesOf(content []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	return out
}
