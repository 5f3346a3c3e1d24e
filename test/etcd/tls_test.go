package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
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
	c := start(t, 1, func(config *embed.Config) {
		config.ListenClientUrls[0].Scheme = "https"
		config.AdvertiseClientUrls[0].Scheme = "https"
		config.ClientTLSInfo = transport.TLSInfo{
			CertFile: file("server.crt", set.Serving.Cert), KeyFile: file("server.key", set.Serving.Key),
			TrustedCAFile: ca, ClientCertAuth: true,
		}
	})
	c.members[0].client.Scheme = "https"
	pair, err := set.Admin.TLS()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(set.CA)
	s := c.open(t, etcd.Options{TLS: func() *tls.Config {
		return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}} //nolint:gosec // of a test
	}})
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
	for want, config := range map[string]*tls.Config{
		"certificate required":                {RootCAs: roots},                             //nolint:gosec // of a test
		"certificate signed by unknown":       {Certificates: []tls.Certificate{pair}},      //nolint:gosec // of a test
		"x509: certificate signed by unknown": nil,                                          // only the scheme says that there is TLS
		"wanted to match":                     {RootCAs: roots, ServerName: "other.domain"}, //nolint:gosec // of a test
	} {
		o := etcd.Options{Endpoints: c.endpoints(), DialTimeout: 500 * time.Millisecond, Logger: quiet()}
		if config != nil {
			o.TLS = func() *tls.Config { return config }
		}
		s, err := etcd.Open(t.Context(), o)
		if err == nil {
			s.Close()
			t.Errorf("%s: it opened", want)
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), o.Endpoints[0]) {
			t.Errorf("the error does not say %q and the endpoint: %v", want, err)
		}
	}
}

// TestUnreachable checks that the error of Open names the endpoints and why they cannot be reached.
func TestUnreachable(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := etcd.Open(t.Context(), etcd.Options{
		Endpoints: []string{endpoint, "https://nowhere.invalid:2379"}, DialTimeout: 500 * time.Millisecond, Logger: quiet(),
	})
	if err == nil {
		s.Close()
		t.Fatal("it opened")
	}
	for _, want := range []string{endpoint + ": connection refused", "https://nowhere.invalid:2379: dial tcp"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// TestCertificatesAreRotated replaces the certificates of the member, its authority and the client certificate while a
// server runs on it: the server connects to the restarted member with the new files.
func TestCertificatesAreRotated(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, content []byte) {
		t.Helper()
		if err := certs.WriteFile(path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func() *certs.Set {
		t.Helper()
		set, err := certs.Ensure(certs.Options{Serving: true, Admin: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	writeAll := func(set *certs.Set) {
		t.Helper()
		write("server.crt", set.Serving.Cert)
		write("server.key", set.Serving.Key)
		write("ca.crt", set.CA)
		write("client.crt", set.Admin.Cert)
		write("client.key", set.Admin.Key)
	}
	writeAll(issue())
	c := start(t, 1, func(config *embed.Config) {
		config.ListenClientUrls[0].Scheme = "https"
		config.AdvertiseClientUrls[0].Scheme = "https"
		config.ClientTLSInfo = transport.TLSInfo{
			CertFile: path("server.crt"), KeyFile: path("server.key"), TrustedCAFile: path("ca.crt"), ClientCertAuth: true,
		}
	})
	c.members[0].client.Scheme = "https"
	maps := serve(t, c, func(conf *config.Config) {
		conf.Storage.Etcd.CAFile, conf.Storage.Etcd.CertFile, conf.Storage.Etcd.KeyFile = path("ca.crt"), path("client.crt"), path("client.key")
	}).CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stop(0)
	writeAll(issue())
	c.restart(0)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		_, err := maps.Create(t.Context(), configMap("after"), metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) { // a write whose answer was an error may have taken effect
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v after the certificates of etcd were replaced, writes still fail: %v", patience, err)
		}
	}
}
