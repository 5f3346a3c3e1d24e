package servingcert

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

// localConn is a connection that only has a local address.
type localConn struct {
	net.Conn
	local net.IP
}

func (c localConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: c.local, Port: 6443} }

// TestCertificatesForAddresses checks that a client without a server name gets the certificate for the address
// that it connects to.
func TestCertificatesForAddresses(t *testing.T) {
	made, err := certs.Ensure(certs.Options{Serving: true, Names: []string{"a.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	own, err := made.Serving.TLS()
	if err != nil {
		t.Fatal(err)
	}
	dir, want := t.TempDir(), own.Leaf.SerialNumber
	certFile, keyFile := filepath.Join(dir, "own.crt"), filepath.Join(dir, "own.key")
	for file, content := range map[string][]byte{certFile: made.Serving.Cert, keyFile: made.Serving.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		c := config.Serving{TLS: config.TLS{SNICertKeys: []string{certFile + "," + keyFile + ":" + address}}}
		s, err := newCertificates(&c, nil, func() (*tls.Certificate, error) { return nil, errors.New("the standard one") })
		if err != nil {
			t.Fatal(err)
		}
		pair, err := s.choose(&tls.ClientHelloInfo{Conn: localConn{local: net.ParseIP(address)}})
		if err != nil || pair.Leaf.SerialNumber.Cmp(want) != 0 {
			t.Errorf("%s: %v", address, err)
		}
	}
}
