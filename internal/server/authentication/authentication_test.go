package authentication

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	clientcert "github.com/keelson-dev/keelson/internal/access/auth/x509"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

// newAuthority returns the certificate of a new authority, PEM.
func newAuthority(t *testing.T) []byte {
	t.Helper()
	set, err := certs.Ensure(certs.Options{Serving: true})
	if err != nil {
		t.Fatal(err)
	}
	return set.CA
}

// TestClientHintsFollowTheAuthorities checks that each new connection names the current authorities to clients,
// and that connections share one configuration until the authorities change.
func TestClientHintsFollowTheAuthorities(t *testing.T) {
	a := Authorities{Clients: clientcert.NewAuthorities(newAuthority(t), "file"), Proxies: clientcert.NewAuthorities(newAuthority(t), "")}
	base := a.TLSConfig(&tls.Config{MinVersion: tls.VersionTLS13})
	get := func(want ...[]byte) *tls.Config {
		t.Helper()
		c, err := base.GetConfigForClient(nil)
		if err != nil || c.MinVersion != base.MinVersion || c.GetConfigForClient != nil {
			t.Fatalf("%+v, %v", c, err)
		}
		pool := x509.NewCertPool()
		for _, pem := range want {
			pool.AppendCertsFromPEM(pem)
		}
		if !c.ClientCAs.Equal(pool) {
			t.Error("other authorities than those in effect")
		}
		return c
	}
	first := get(a.Clients.PEM(), a.Proxies.PEM())
	if get(a.Clients.PEM(), a.Proxies.PEM()) != first {
		t.Error("a second connection has another configuration")
	}
	if err := a.Clients.Use(newAuthority(t)); err != nil {
		t.Fatal(err)
	}
	if get(a.Clients.PEM(), a.Proxies.PEM()) == first {
		t.Error("the configuration did not change with the authorities")
	}
}

// TestProxiesNeedNamesBesideClients checks that an authority of both clients and front proxies is refused unless
// the names of proxies are configured. Otherwise every client could name any user.
func TestProxiesNeedNamesBesideClients(t *testing.T) {
	ca, file := newAuthority(t), filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	for names, refused := range map[string]bool{"": true, "proxy": false} {
		var c config.Config
		c.Authentication.RequestHeader.ClientCAFile = file
		if names != "" {
			c.Authentication.RequestHeader.AllowedNames = []string{names}
		}
		a := &Authentication{Options: Options{Config: &c, Own: Own{CA: ca}}} // the server's own authority signs clients too
		if err := a.openAuthorities(); (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "overlapping") {
			t.Errorf("allowed names %q: %v", names, err)
		}
	}
}
