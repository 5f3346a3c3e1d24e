package x509

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/auth/follow"
)

// Authorities are what client certificates are verified with: fixed ones, and those
// of a file that may be replaced while the server runs.
type Authorities struct {
	fixed []byte // PEM
	path  string // "" is none
	now   atomic.Pointer[bundle]
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

func (a *Authorities) use(content []byte) error {
	b := &bundle{pool: x509.NewCertPool(), file: content, pem: bytes.Join([][]byte{a.fixed, content}, nil)}
	if a.path != "" && !b.pool.AppendCertsFromPEM(content) {
		return fmt.Errorf("%s has no certificates", a.path)
	}
	b.pool.AppendCertsFromPEM(a.fixed)
	a.now.Store(b)
	return nil
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
	f := follow.File{Path: a.path, Every: every, Use: a.use, Failed: failed}
	f.Run(ctx, a.now.Load().file)
}

// Overlap says whether two bundles have a certificate in common.
func Overlap(a, b []byte) bool {
	seen := map[string]bool{}
	for _, der := range certificatesOf(a) {
		seen[string(der)] = true
	}
	for _, der := range certificatesOf(b) {
		if seen[string(der)] {
			return true
		}
	}
	return false
}

func certificatesOf(content []byte) [][]byte {
	var out [][]byte
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			out = append(out, block.Bytes)
		}
	}
	return out
}
