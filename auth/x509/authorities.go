package x509

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/auth/filewatch"
)

// Authorities are what client certificates are verified with: fixed ones, and those
// of a file that may be replaced while the server runs.
type Authorities struct {
	fixed []byte // PEM
	path  string // "" is none
	now   atomic.Pointer[bundle]
	apart *apart // nil: may have anything in common with others
}

// apart keeps the authorities of clients and those of front proxies from overlapping.
type apart struct {
	sync.Mutex       // held while one of the two is compared and replaced
	clients, proxies *Authorities
}

// bundle is the authorities at one time.
type bundle struct {
	pool *x509.CertPool
	file []byte // the content of the file
	pem  []byte
}

// OpenAuthorities reads the file, if there is one.
func OpenAuthorities(fixed []byte, path string) (*Authorities, error) {
	a := &Authorities{fixed: fixed, path: path}
	var content []byte
	if path != "" {
		var err error
		if content, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return a, a.use(content)
}

// use replaces the authorities with the fixed ones and those of content. What is in
// use stays so if content has no certificates, or one that overlaps with the
// Authorities that this one is kept apart from.
func (a *Authorities) use(content []byte) error {
	b := &bundle{pool: x509.NewCertPool(), file: content, pem: bytes.Join([][]byte{a.fixed, content}, nil)}
	if a.path != "" && !b.pool.AppendCertsFromPEM(content) {
		return fmt.Errorf("%s has no certificates", a.path)
	}
	b.pool.AppendCertsFromPEM(a.fixed)
	if a.apart != nil {
		a.apart.Lock()
		defer a.apart.Unlock()
		if a.apart.overlap(a, b) {
			// The other file may be about to be replaced too.
			return filewatch.Again(fmt.Errorf("%s: %w", a.path, ErrOverlap))
		}
	}
	a.now.Store(b)
	return nil
}

// ErrOverlap says that a client certificate may be taken for one of a front proxy.
var ErrOverlap = errors.New("the authorities of clients and those of front proxies overlap, so that a client could name any user in headers")

// KeepApart returns ErrOverlap if the two overlap (see Overlap), and makes each refuse
// later content that would overlap with the other. It is called before either is
// followed.
func KeepApart(clients, proxies *Authorities) error {
	if Overlap(clients.PEM(), proxies.PEM()) {
		return ErrOverlap
	}
	clients.apart = &apart{clients: clients, proxies: proxies}
	proxies.apart = clients.apart
	return nil
}

// overlap says whether the two overlap when b takes the place of what a has.
func (p *apart) overlap(a *Authorities, b *bundle) bool {
	if a == p.clients {
		return Overlap(b.pem, p.proxies.PEM())
	}
	return Overlap(p.clients.PEM(), b.pem)
}

// Pool returns the authorities in use. It is another one after each change.
func (a *Authorities) Pool() *x509.CertPool { return a.now.Load().pool }

// PEM returns the authorities in use.
func (a *Authorities) PEM() []byte { return a.now.Load().pem }

// Follow takes up changes of the file until ctx ends.
func (a *Authorities) Follow(ctx context.Context, every time.Duration, failed func(error)) {
	if a.path == "" {
		return
	}
	f := filewatch.File{Path: a.path, Every: every, Use: a.use, Failed: failed}
	f.Run(ctx, a.now.Load().file)
}

// Overlap says whether certificates of clients may be verified with the authorities of
// front proxies. That is so where both have an authority with the same public key,
// whatever else its certificates say, and where an authority of proxies has issued one
// of clients: a client may send that one along as an intermediate. The opposite is no
// overlap: an authority of clients may have issued one that is for proxies alone.
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

// issued says whether parent has signed child.
func issued(parent, child *x509.Certificate) bool {
	return bytes.Equal(parent.RawSubject, child.RawIssuer) && child.CheckSignatureFrom(parent) == nil
}

// keyOf returns the public key of a certificate in one encoding, since a certificate
// may have its key in another.
func keyOf(c *x509.Certificate) []byte {
	if key, err := x509.MarshalPKIXPublicKey(c.PublicKey); err == nil {
		return key
	}
	return c.RawSubjectPublicKeyInfo // of an algorithm that is not known: nothing is verified with it
}

// certificatesOf returns the certificates of PEM. Those that cannot be read are left
// out, as x509.CertPool does.
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
