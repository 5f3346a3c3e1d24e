package x509

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// issuer makes certificates.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t}
	i.cert, i.key = i.issue(
		&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true})
	return i
}

func (i *issuer) issue(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(time.Hour)
	}
	if template.ExtKeyUsage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	parent, signer := i.cert, i.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		i.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		i.t.Fatal(err)
	}
	return cert, key
}

func (i *issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

func with(ctx context.Context, certs ...*x509.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	return r
}

func TestCertificates(t *testing.T) {
	ca, other := newIssuer(t), newIssuer(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	uid := func(values ...any) pkix.Name {
		n := pkix.Name{CommonName: "jane", Organization: []string{"dev"}}
		for _, v := range values {
			n.ExtraNames = append(n.ExtraNames, pkix.AttributeTypeAndValue{Type: oidUID, Value: v})
		}
		return n
	}
	for name, c := range map[string]struct {
		by       *issuer
		template x509.Certificate
		user     string // with the UID
		err      string
	}{
		"a user":        {ca, x509.Certificate{Subject: uid()}, "jane/", ""},
		"with a UID":    {ca, x509.Certificate{Subject: uid("u1")}, "jane/u1", ""},
		"with two UIDs": {ca, x509.Certificate{Subject: uid("u1", "u2")}, "", "expected 1 UID, but found multiple: [u1 u2]"},
		"an empty UID":  {ca, x509.Certificate{Subject: uid("")}, "", "UID cannot be an empty string"},
		"nobody":        {ca, x509.Certificate{}, "", ""},
		"another's":     {other, x509.Certificate{Subject: uid()}, "", "certificate signed by unknown authority"},
		"expired": {ca,
			x509.Certificate{Subject: uid(), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)},
			"", "certificate has expired"},
		"of a server": {ca, x509.Certificate{Subject: uid(), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "",
			"incompatible key usage"},
	} {
		cert, _ := c.by.issue(&c.template)
		a := &Authenticator{Roots: func() *x509.CertPool { return pool }, Observe: func(time.Duration) {}}
		user, err := a.Authenticate(with(t.Context(), cert))
		got := ""
		if user != nil {
			got = user.Name + "/" + user.UID
			if id := user.Extra[extraCredential]; len(id) != 1 || !strings.HasPrefix(id[0], "X509SHA256=") {
				t.Errorf("%s: credential %q", name, id)
			}
		}
		if got != c.user || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

// TestAuthoritiesAreReplaced checks that a certificate is no longer accepted on an open connection after the file
// has got another authority.
func TestAuthoritiesAreReplaced(t *testing.T) {
	one, two := newIssuer(t), newIssuer(t)
	authorities := NewAuthorities(nil, "ca.crt")
	if err := authorities.Use(one.pem()); err != nil {
		t.Fatal(err)
	}
	a := &Authenticator{Roots: authorities.Pool, Observe: func(time.Duration) {}}
	mine, _ := one.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "jane"}})
	theirs, _ := two.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "june"}})
	ctx := WithConnection(t.Context())
	if user, err := a.Authenticate(with(ctx, mine)); user == nil {
		t.Fatal(err)
	}
	if authorities.Use([]byte("no certificate")) == nil {
		t.Error("a file without certificates is no error")
	}
	if user, _ := a.Authenticate(with(ctx, mine)); user == nil {
		t.Error("a file without certificates is taken up")
	}
	if err := authorities.Use(two.pem()); err != nil {
		t.Fatal(err)
	}
	if user, _ := a.Authenticate(with(ctx, mine)); user != nil {
		t.Error("an authority that is gone counts")
	}
	if user, err := a.Authenticate(with(WithConnection(t.Context()), theirs)); user == nil {
		t.Error(err)
	}
}

// reissued returns an authority with the same key, another name and a new certificate.
func (i *issuer) reissued(name string) *issuer {
	i.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(3 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &i.key.PublicKey, i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		i.t.Fatal(err)
	}
	return &issuer{t: i.t, cert: cert, key: i.key}
}

// intermediate returns an authority that i has issued.
func (i *issuer) intermediate() *issuer {
	out := &issuer{t: i.t}
	out.cert, out.key = i.issue(
		&x509.Certificate{Subject: pkix.Name{CommonName: "below"}, IsCA: true, BasicConstraintsValid: true})
	return out
}

func TestOverlap(t *testing.T) {
	one, two := newIssuer(t), newIssuer(t)
	both := append(one.pem(), two.pem()...)
	for name, c := range map[string]struct {
		clients, proxies []byte
		want             bool
	}{
		"the same certificate":       {both, two.pem(), true},
		"a reissued certificate":     {one.pem(), one.reissued("ca").pem(), true},
		"the same key, another name": {one.pem(), one.reissued("other").pem(), true},
		"proxies below clients":      {one.pem(), one.intermediate().pem(), false},
		"clients below proxies":      {one.intermediate().pem(), one.pem(), true},
		"different keys, one name":   {one.pem(), two.pem(), false},
		"nothing":                    {nil, nil, false},
	} {
		if got := Overlap(c.clients, c.proxies); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestForbidOverlap replaces the file of one of two Authorities by one with a key of the
// other: the file is refused, until the other no longer has the key.
func TestForbidOverlap(t *testing.T) {
	one, two := newIssuer(t), newIssuer(t)
	open := func(i *issuer) *Authorities {
		a := NewAuthorities(nil, "ca.crt")
		if err := a.Use(i.pem()); err != nil {
			t.Fatal(err)
		}
		return a
	}
	if err := ForbidOverlap(open(one), open(one.reissued("ca"))); !errors.Is(err, ErrOverlap) {
		t.Errorf("at the start: %v", err)
	}
	clients, proxies := open(one), open(two)
	if err := ForbidOverlap(clients, proxies); err != nil {
		t.Fatal(err)
	}
	before := proxies.Pool()
	if err := proxies.Use(one.reissued("ca").pem()); !errors.Is(err, ErrOverlap) || proxies.Pool() != before {
		t.Errorf("a reissued authority of clients: %v, replaced: %v", err, proxies.Pool() != before)
	}
	if err := clients.Use(two.pem()); !errors.Is(err, ErrOverlap) {
		t.Errorf("an authority of proxies: %v", err)
	}
	if err := clients.Use(newIssuer(t).pem()); err != nil {
		t.Errorf("another authority: %v", err)
	}
	if err := proxies.Use(one.pem()); err != nil {
		t.Errorf("an authority that clients do not have any more: %v", err)
	}
}

// TestVerifyOnce checks that a result is used again on its connection only for the same authorities, and a failure
// only for failureTTL.
func TestVerifyOnce(t *testing.T) {
	ca, other := newIssuer(t), newIssuer(t)
	mine, theirs := x509.NewCertPool(), x509.NewCertPool()
	mine.AddCert(ca.cert)
	theirs.AddCert(other.cert)
	now := time.Now()
	cert, _ := ca.issue(
		&x509.Certificate{Subject: pkix.Name{CommonName: "proxy"}, NotBefore: now.Add(5 * time.Second),
			NotAfter: now.Add(time.Minute)})
	r := with(WithConnection(t.Context()), cert)
	for _, step := range []struct {
		roots *x509.CertPool
		after time.Duration
		holds bool
	}{
		{mine, 0, false},               // not valid yet
		{mine, 6 * time.Second, false}, // the failure is cached
		{mine, 11 * time.Second, true}, // valid now
		{theirs, 11 * time.Second, false},
		{mine, 12 * time.Second, true},
		{mine, 2 * time.Minute, false}, // expired meanwhile
	} {
		if err := VerifyOnce(r, step.roots, now.Add(step.after)); (err == nil) != step.holds {
			t.Errorf("after %v: %v", step.after, err)
		}
	}
}
