// Package x509 authenticates client certificates. The common name is the user name, the
// organizations are the groups.
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

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// oidUID is the type of the subject attribute with the user's UID (kubernetes.io's arc
// 1.3.6.1.4.1.57683, 2).
var oidUID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// extraCredential is the extra key of the user that identifies the certificate.
const extraCredential = "authentication.kubernetes.io/credential-id"

// Authenticator verifies client certificates with a pool of certificate authorities.
type Authenticator struct {
	// Roots returns the certificate authorities of clients.
	Roots func() *x509.CertPool
	// Observe is called before each verification with the time until the
	// certificate expires.
	Observe func(remaining time.Duration)
}

// Authenticate implements authn.Authenticator.
func (a *Authenticator) Authenticate(r *http.Request) (*request.User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	now, roots := time.Now(), a.Roots()
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

func (a *Authenticator) verify(
	certificates []*x509.Certificate, roots *x509.CertPool, now time.Time,
) (*verified, error) {
	leaf := certificates[0]
	a.Observe(leaf.NotAfter.Sub(now))
	chains, err := verifyChains(certificates, roots, now)
	if err != nil {
		reason := authn.ReasonCertificate
		if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
			reason = authn.ReasonExpired
		}
		err = fmt.Errorf("verifying certificate SN=%d, SKID=%s, AKID=%s failed: %w",
			leaf.SerialNumber, colonHex(leaf.SubjectKeyId), colonHex(leaf.AuthorityKeyId), err)
		return nil, authn.Refuse(reason, "", err)
	}
	v := &verified{roots: roots, until: validUntil(chains)}
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
func verifyChains(
	certificates []*x509.Certificate, roots *x509.CertPool, now time.Time,
) ([][]*x509.Certificate, error) {
	options := x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(certificates) > 1 {
		options.Intermediates = x509.NewCertPool()
		for _, c := range certificates[1:] {
			options.Intermediates.AddCert(c)
		}
	}
	return certificates[0].Verify(options)
}

// userOf returns the user of a certificate, nil if it has no common name.
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

// colonHex returns an identifier as hexadecimal pairs separated by colons.
func colonHex(id []byte) string {
	pairs := make([]string, len(id))
	for i, b := range id {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}

// validUntil returns the time until which at least one of the chains is valid.
func validUntil(chains [][]*x509.Certificate) time.Time {
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

// connection caches the last verifications on one connection, whose certificate cannot change.
type connection struct {
	verified atomic.Pointer[verified]
	proxy    atomic.Pointer[proxyVerification]
}

// proxyVerification is the result of VerifyOnce.
type proxyVerification struct {
	err   error
	roots *x509.CertPool
	until time.Time
}

// failureTTL is the time for which a failed verification is cached. The certificate may become valid later.
const failureTTL = 10 * time.Second

// VerifyOnce verifies the certificates of a request, once per connection. It is for one pool
// in addition to the pool of an Authenticator.
func VerifyOnce(r *http.Request, roots *x509.CertPool, now time.Time) error {
	conn, _ := r.Context().Value(connKey{}).(*connection)
	if conn != nil {
		if p := conn.proxy.Load(); p != nil && p.roots == roots && now.Before(p.until) {
			return p.err
		}
	}
	chains, err := verifyChains(r.TLS.PeerCertificates, roots, now)
	p := &proxyVerification{err: err, roots: roots, until: now.Add(failureTTL)}
	if err == nil {
		p.until = validUntil(chains)
	}
	if conn != nil {
		conn.proxy.Store(p)
	}
	return err
}

type verified struct {
	user  *request.User // nil: the certificate has no common name
	roots *x509.CertPool
	until time.Time
}

// WithConnection returns the context for a new connection, so that its certificate is verified
// once and not for each request. It is for http.Server.ConnContext.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connKey{}, &connection{})
}
