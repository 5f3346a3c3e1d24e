package requestheader

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func issue(t *testing.T, name string, parent *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: parent == nil, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	signer := &authority{template, key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func TestHeadersOfOtherClientsAreIgnored(t *testing.T) {
	ca, other := issue(t, "ca", nil), issue(t, "other", nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	proxy, stranger, elsewhere := issue(t, "proxy", ca), issue(t, "stranger", ca), issue(t, "proxy", other)
	jane := http.Header{
		"X-Remote-User": {"jane"}, "X-Remote-Uid": {"u1"}, "X-Remote-Group": {"dev", "", "ops"},
		"X-Remote-Extra-Scopes": {"a", "b"}, "X-Remote-Extra-Acme.com%2fproject": {"p"},
	}
	want := &request.User{
		Name: "jane", UID: "u1", Groups: []string{"dev", "ops", "system:authenticated"},
		Extra: map[string][]string{"scopes": {"a", "b"}, "acme.com/project": {"p"}},
	}
	for name, c := range map[string]struct {
		cert    *authority
		allowed []string
		header  http.Header
		user    *request.User
		fails   bool
	}{
		"the proxy":                      {proxy, []string{"proxy"}, jane, want, false},
		"any name":                       {stranger, nil, jane, want, false},
		"no certificate":                 {nil, nil, jane, nil, false},
		"a certificate of another name":  {stranger, []string{"proxy"}, jane, nil, true},
		"a certificate of somebody else": {elsewhere, []string{"proxy"}, jane, nil, true},
		"the proxy names nobody":         {proxy, nil, http.Header{"X-Remote-Group": {"system:masters"}}, nil, false},
	} {
		a := &Authenticator{Roots: func() *x509.CertPool { return pool }, AllowedNames: c.allowed, Names: DefaultNames(),
			Now: time.Now}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = c.header.Clone()
		r.TLS = &tls.ConnectionState{}
		if c.cert != nil {
			r.TLS.PeerCertificates = []*x509.Certificate{c.cert.cert}
		}
		user, err := a.Authenticate(r)
		if !reflect.DeepEqual(user, c.user) || (err != nil) != c.fails {
			t.Errorf("%s: %+v %v", name, user, err)
		}
	}
}

func TestClearLeavesNothing(t *testing.T) {
	n := Names{Users: []string{"X-Remote-User"}, UIDs: []string{"X-Uid"}, Groups: []string{"X-Group"},
		ExtraPrefixes: []string{"X-Extra-"}}
	h := http.Header{"X-Remote-User": {"a"}, "X-Uid": {"b"}, "X-Group": {"c"}, "X-Extra-A": {"d"}, "x-extra-raw": {"e"},
		"X-Other": {"f"}}
	n.Clear(h)
	if !reflect.DeepEqual(h, http.Header{"X-Other": {"f"}}) {
		t.Errorf("%v", h)
	}
}
