// Package x509 authenticates client certificates: the common name is the user, the
// organizations are groups.
package x509

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/request"
)

// oidUID marks the part of a subject that is the user's UID
// (kubernetes.io's arc 1.3.6.1.4.1.57683, 2).
var oidUID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// extraCredential names the certificate among what is known of the user.
const extraCredential = "authentication.kubernetes.io/credential-id"

// Authenticator verifies certificates against a pool of authorities.
type Authenticator struct {
	// Roots returns the authorities that client certificates are verified with.
	Roots func() *x509.CertPool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Observe is told how long a certificate holds that is to be verified; nil is
	// not.
	Observe func(remaining time.Duration)
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
	v, err := a.verify(r.TLS.PeerCertificates, roots, now)
	if err != nil {
		return nil, err
	}
	if conn != nil {
		conn.verified.Store(v)
	}
	return v.user, nil
}

func (a *Authenticator) verify(sent []*x509.Certificate, roots *x509.CertPool, now time.Time) (*verified, error) {
	leaf := sent[0]
	if a.Observe != nil {
		a.Observe(leaf.NotAfter.Sub(now))
	}
	chains, err := verifyChains(sent, roots, now)
	if err != nil {
		return nil, fmt.Errorf("verifying certificate SN=%d, SKID=%s, AKID=%s failed: %w",
			leaf.SerialNumber, colons(leaf.SubjectKeyId), colons(leaf.AuthorityKeyId), err)
	}
	v := &verified{roots: roots, until: lifetime(chains)}
	user, err := userOf(leaf)
	if err != nil {
		return nil, err
	}
	if user != nil {
		v.user = authn.WithAuthenticated(user)
	}
	return v, nil
}

// verifyChains verifies a client's certificates.
func verifyChains(sent []*x509.Certificate, roots *x509.CertPool, now time.Time) ([][]*x509.Certificate, error) {
	options := x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(sent) > 1 {
		options.Intermediates = x509.NewCertPool()
		for _, c := range sent[1:] {
			options.Intermediates.AddCert(c)
		}
	}
	return sent[0].Verify(options)
}

// userOf returns whom a certificate stands for, nil for nobody: one without a
// common name.
func userOf(leaf *x509.Certificate) (*request.User, error) {
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := uidOf(leaf)
	if err != nil {
		return nil, err
	}
	fingerprint := sha256.Sum256(leaf.Raw)
	return &request.User{
		Name: leaf.Subject.CommonName, UID: uid, Groups: leaf.Subject.Organization,
		Extra: map[string][]string{extraCredential: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}, nil
}

func uidOf(leaf *x509.Certificate) (string, error) {
	uid, found := "", false
	for _, name := range leaf.Subject.Names {
		if !name.Type.Equal(oidUID) {
			continue
		}
		value, ok := name.Value.(string)
		switch {
		case !ok:
			return "", errors.New("unable to parse UID into a string")
		case found:
			return "", fmt.Errorf("expected 1 UID, but found multiple: %v", []string{uid, value})
		case value == "":
			return "", errors.New("UID cannot be an empty string")
		}
		uid, found = value, true
	}
	return uid, nil
}

// colons writes an identifier as pairs of digits.
func colons(id []byte) string {
	pairs := make([]string, len(id))
	for i, b := range id {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
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

// connection remembers the last verifications on one connection: a certificate
// cannot change within it.
type connection struct {
	verified atomic.Pointer[verified]
	proof    atomic.Pointer[proof]
}

// proof is what VerifyOnce found.
type proof struct {
	err   error
	roots *x509.CertPool
	until time.Time
}

// failureHolds is for how long a certificate that does not hold is not looked at
// again: it may begin to.
const failureHolds = 10 * time.Second

// VerifyOnce says whether the certificates of a request hold, and looks once a
// connection. It is for one pool beside that of an Authenticator.
func VerifyOnce(r *http.Request, roots *x509.CertPool, now time.Time) error {
	conn, _ := r.Context().Value(connKey{}).(*connection)
	if conn != nil {
		if p := conn.proof.Load(); p != nil && p.roots == roots && now.Before(p.until) {
			return p.err
		}
	}
	chains, err := verifyChains(r.TLS.PeerCertificates, roots, now)
	p := &proof{err: err, roots: roots, until: now.Add(failureHolds)}
	if err == nil {
		p.until = lifetime(chains)
	}
	if conn != nil {
		conn.proof.Store(p)
	}
	return err
}

type verified struct {
	user  *request.User // nil: the certificate stands for nobody
	roots *x509.CertPool
	until time.Time
}

// WithConnection returns ctx for a new connection, so that its certificate is
// verified once and not with each request. It is for http.Server.ConnContext.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connKey{}, &connection{})
}
