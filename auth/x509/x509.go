// Package x509 authenticates client certificates: the common name is the user,
// the organizations are the groups.
package x509

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/request"
)

// oidUID marks the part of a subject that is the user's UID
// (kubernetes.io's arc 1.3.6.1.4.1.57683, 2).
var oidUID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// Authenticator verifies certificates against a pool of authorities.
type Authenticator struct {
	// Roots returns the authorities that client certificates are verified with.
	Roots func() *x509.CertPool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Authenticate implements authn.Authenticator.
func (a *Authenticator) Authenticate(r *http.Request) (*request.User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	now := time.Now()
	if a.Now != nil {
		now = a.Now()
	}
	roots := a.Roots()
	conn, _ := r.Context().Value(connKey{}).(*connection)
	if conn != nil {
		if v := conn.verified.Load(); v != nil && v.roots == roots && now.Before(v.until) {
			return v.user, nil
		}
	}
	v, err := verify(r.TLS.PeerCertificates, roots, now)
	if err != nil {
		return nil, err
	}
	if conn != nil {
		conn.verified.Store(v)
	}
	return v.user, nil
}

func verify(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) (*verified, error) {
	leaf := chain[0]
	options := x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(chain) > 1 {
		options.Intermediates = x509.NewCertPool()
		for _, c := range chain[1:] {
			options.Intermediates.AddCert(c)
		}
	}
	chains, err := leaf.Verify(options)
	if err != nil {
		return nil, fmt.Errorf("verifying certificate SN=%d failed: %w", leaf.SerialNumber, err)
	}
	user, err := userOf(leaf)
	if err != nil {
		return nil, err
	}
	return &verified{user: authn.WithAuthenticated(user), roots: roots, until: lifetime(chains)}, nil
}

func userOf(leaf *x509.Certificate) (*request.User, error) {
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the certificate's subject has no common name")
	}
	user := &request.User{Name: leaf.Subject.CommonName, Groups: leaf.Subject.Organization}
	for _, name := range leaf.Subject.Names {
		if !name.Type.Equal(oidUID) {
			continue
		}
		uid, ok := name.Value.(string)
		if !ok || user.UID != "" {
			return nil, errors.New("the certificate's subject has more than one UID, or one that is not a string")
		}
		user.UID = uid
	}
	return user, nil
}

// lifetime returns until when the longest-lived of the chains holds.
func lifetime(chains [][]*x509.Certificate) time.Time {
	var best time.Time
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(best) {
			best = end
		}
	}
	return best
}

type connKey struct{}

// connection remembers the last verification on one connection: a certificate
// cannot change within it.
type connection struct {
	verified atomic.Pointer[verified]
}

type verified struct {
	user  *request.User
	roots *x509.CertPool
	until time.Time
}

// WithConnection returns ctx for a new connection, so that its certificate is
// verified once and not with each request. It is for http.Server.ConnContext.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connKey{}, &connection{})
}
