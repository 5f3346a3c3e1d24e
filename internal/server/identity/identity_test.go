package identity

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
)

// newIdentity returns the identity of a server without a data directory.
func newIdentity(t *testing.T, c *config.Config) *Identity {
	t.Helper()
	i, err := New(Options{
		Config: c, Certificates: map[string]certs.Pair{}, Service: net.IPv4(10, 0, 0, 1), Advertised: net.IPv4(127, 0, 0, 1),
		URL: "https://127.0.0.1:6443", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestServingCertificateHasEachNameOnce checks that a name in several flags is in the certificate once.
func TestServingCertificateHasEachNameOnce(t *testing.T) {
	c := config.InMemory()
	c.Serving.Address, c.Serving.ExternalHostname = "127.0.0.1", "localhost"
	c.Serving.TLS.AlternativeNames = []string{"127.0.0.1", "localhost"}
	i := newIdentity(t, &c)
	made, err := i.Serving()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, ip := range made.Leaf.IPAddresses {
		made.Leaf.DNSNames = append(made.Leaf.DNSNames, ip.String())
	}
	for _, name := range made.Leaf.DNSNames {
		if seen[name] {
			t.Errorf("%s is in the certificate twice", name)
		}
		seen[name] = true
	}
	if !seen["127.0.0.1"] || !seen["localhost"] || !seen["10.0.0.1"] {
		t.Errorf("the certificate is for %q", made.Leaf.DNSNames)
	}
}

// TestOwnCredentials checks which credentials a server makes for its administrator and for extension API servers.
func TestOwnCredentials(t *testing.T) {
	for name, want := range map[string]struct {
		change                         func(*config.Config)
		certificate, token, frontProxy bool
	}{
		"default":            {func(*config.Config) {}, true, false, true},
		"in process":         {func(c *config.Config) { c.Serving.InProcess = true }, false, true, true},
		"no own credentials": {func(c *config.Config) { c.Authentication.NoOwnCredentials = true }, false, false, false},
	} {
		c := config.InMemory()
		c.Serving.Address = "127.0.0.1"
		want.change(&c)
		i := newIdentity(t, &c)
		proxy, err := i.FrontProxy()
		certificate, token := i.Current().Admin.Cert != nil, i.AdminToken != ""
		if certificate != want.certificate || token != want.token || (proxy != nil) != want.frontProxy || err != nil {
			t.Errorf("%s: certificate %t, token %t, for extensions %t, %v", name, certificate, token, proxy != nil, err)
		}
		if err := errors.Join(i.NotExpired(t.Context()), i.Renew()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
