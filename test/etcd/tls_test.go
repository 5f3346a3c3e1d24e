package etcd

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keelson-dev/keelson/server/certs"
	"github.com/keelson-dev/keelson/storage/etcd"
)

// TestTLS checks that members which require client certificates accept a valid one. A client without a certificate, or
// one that does not know the members' certificate authority, must get an error in time.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	set, err := certs.Ensure(certs.Options{Serving: true, Admin: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := file("ca.crt", set.CA)
	cert, key := file("client.crt", set.Admin.Cert), file("client.key", set.Admin.Key)
	c := start(t, 1, func(config *embed.Config) {
		config.ListenClientUrls[0].Scheme = "https"
		config.AdvertiseClientUrls[0].Scheme = "https"
		config.ClientTLSInfo = transport.TLSInfo{
			CertFile: file("server.crt", set.Serving.Cert), KeyFile: file("server.key", set.Serving.Key),
			TrustedCAFile: ca, ClientCertAuth: true,
		}
	})
	c.members[0].client.Scheme = "https"
	s := c.open(t, etcd.Options{CAFile: ca, CertFile: cert, KeyFile: key})
	w, err := s.Watch(t.Context(), "/", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), put("/a", "1")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := bounded(t)
	defer cancel()
	if b, err := w.Next(ctx); err != nil || len(b.Events) != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	for _, o := range []etcd.Options{{CAFile: ca}, {CertFile: cert, KeyFile: key}, {}} {
		o.Endpoints, o.DialTimeout, o.Logger = c.endpoints(), 500*time.Millisecond, quiet()
		if s, err := etcd.Open(t.Context(), o); err == nil {
			s.Close()
			t.Errorf("%+v: it opened", o)
		}
	}
}
