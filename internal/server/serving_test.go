package server

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// writePair writes a new certificate for the names to two files, and returns their paths and the serial number.
func writePair(t *testing.T, dir, name string, names ...string) (certFile, keyFile, serial string) {
	t.Helper()
	made, err := certs.Ensure(certs.Options{Serving: true, Names: names, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, content := range map[string][]byte{certFile: made.Serving.Cert, keyFile: made.Serving.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := made.Serving.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, pair.Leaf.SerialNumber.String()
}

// shown connects to the server and returns the serial number of its certificate, and the protocol.
func shown(t *testing.T, s *Server, config *tls.Config) (serial, protocol string, err error) {
	t.Helper()
	config.InsecureSkipVerify, config.NextProtos = true, []string{"h2", "http/1.1"}
	dialer := &tls.Dialer{Config: config}
	conn, err := dialer.DialContext(t.Context(), "tcp", s.URL()[len("https://"):])
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	return state.PeerCertificates[0].SerialNumber.String(), state.NegotiatedProtocol, nil
}

// TestCertificatesOfAServer checks that the certificate in --cert-dir is served, also after it was replaced, and
// that certificates for other names are served for these.
func TestCertificatesOfAServer(t *testing.T) {
	c, dir := testConfig(t), t.TempDir()
	c.Serving.TLS.CertDir = dir
	certFile, keyFile, first := writePair(t, dir, "apiserver", "localhost")
	otherCert, otherKey, other := writePair(t, dir, "other", "a.example.com")
	c.Serving.TLS.SNICertKeys = []string{otherCert + "," + otherKey, otherCert + "," + otherKey + ":*.example.org"}
	s := start(t, c)
	for name, want := range map[string]string{
		"": first, "localhost": first, "a.example.com": other, "b.example.org": other, "example.org": first, "b.example.com": first,
	} {
		if got, _, err := shown(t, s, &tls.Config{ServerName: name}); err != nil || got != want {
			t.Errorf("%q: certificate %s, want %s, %v", name, got, want, err)
		}
	}
	_, _, second := writePair(t, dir, "apiserver", "localhost")
	for _, file := range []string{certFile, keyFile} { // the clock of the file system may be coarse
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if got, _, err := shown(t, s, &tls.Config{}); err != nil || got != second {
		t.Errorf("after the files were replaced: certificate %s, want %s, %v", got, second, err)
	}
}

// TestOwnCertificateIsWritten checks that the server writes its own certificate to --cert-dir if that has no
// files.
func TestOwnCertificateIsWritten(t *testing.T) {
	c := testConfig(t)
	c.Serving.TLS.CertDir = filepath.Join(t.TempDir(), "new")
	s := start(t, c)
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.Serving.TLS.CertDir, "apiserver.crt"), filepath.Join(c.Serving.TLS.CertDir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := shown(t, s, &tls.Config{}); err != nil || got != pair.Leaf.SerialNumber.String() {
		t.Errorf("certificate %s, in the file %s, %v", got, pair.Leaf.SerialNumber, err)
	}
}

func TestTLSOptions(t *testing.T) {
	c := testConfig(t)
	c.Serving.TLS.MinVersion, c.Serving.DisableHTTP2, c.Serving.PermitPortSharing = "VersionTLS13", true, true
	c.Serving.ExternalHostname = "api.example.com"
	s := start(t, c)
	if _, _, err := shown(t, s, &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("a client with TLS 1.2 is accepted")
	}
	if _, protocol, err := shown(t, s, &tls.Config{}); err != nil || protocol != "http/1.1" {
		t.Errorf("the protocol is %s, %v", protocol, err)
	}
	a := apitest.Send(t, httpClient(t, s, true), http.MethodGet, s.URL()+"/api", "")
	if want := `"serverAddress":"api.example.com:`; !strings.Contains(a.Body, want) {
		t.Errorf("%s, want %s", a.Body, want)
	}
	second := c
	second.Storage.DataDir = filepath.Join(t.TempDir(), "data")
	_, port, err := net.SplitHostPort(s.URL()[len("https://"):])
	if err != nil {
		t.Fatal(err)
	}
	if second.Serving.Port, err = net.LookupPort("tcp", port); err != nil {
		t.Fatal(err)
	}
	start(t, second) // on the same port
}

// TestWithoutGarbageCollector checks that a deletion sets no finalizer for the garbage collector: the object is
// gone at once.
func TestWithoutGarbageCollector(t *testing.T) {
	c := testConfig(t)
	c.Controllers.NoGarbageCollection = true
	s := start(t, c)
	client := httpClient(t, s, true)
	a := apitest.Send(t, client, http.MethodPost, s.URL()+apitest.ConfigMapsPath, apitest.ConfigMap("a"))
	if a.Status != http.StatusCreated {
		t.Fatal(a.Status, a.Body)
	}
	path := s.URL() + apitest.ConfigMapsPath + "/a"
	if a := apitest.Send(t, client, http.MethodDelete, path+"?propagationPolicy=Foreground", ""); a.Status != http.StatusOK {
		t.Fatal(a.Status, a.Body)
	}
	if a := apitest.Send(t, client, http.MethodGet, path, ""); a.Status != http.StatusNotFound {
		t.Errorf("after the deletion: %d %s", a.Status, a.Body)
	}
}

// TestKubeconfigOfAnotherCertificate checks that the administrator's kubeconfig can verify a certificate of the
// operator. If that is not valid for the address, the kubeconfig has a server name from the certificate.
func TestKubeconfigOfAnotherCertificate(t *testing.T) {
	for want, o := range map[string]certs.Options{
		"":                {Names: []string{"api.example.com"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
		"api.example.com": {Names: []string{"*.example.com", "api.example.com"}},
	} {
		o.Serving = true
		made, err := certs.Ensure(o)
		if err != nil {
			t.Fatal(err)
		}
		conf, dir := testConfig(t), t.TempDir()
		tlsOptions := &conf.Serving.TLS
		tlsOptions.CertFile, tlsOptions.KeyFile = filepath.Join(dir, "own.crt"), filepath.Join(dir, "own.key")
		for file, content := range map[string][]byte{
			tlsOptions.CertFile: append(made.Serving.Cert, made.CA...), tlsOptions.KeyFile: made.Serving.Key,
		} {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var k struct {
			Clusters []struct {
				Cluster struct {
					ServerName string `json:"tls-server-name"`
					CA         []byte `json:"certificate-authority-data"`
				}
			}
		}
		s := start(t, conf)
		if err := yaml.Unmarshal(s.Kubeconfig(), &k); err != nil {
			t.Fatal(err)
		}
		cluster := k.Clusters[0].Cluster
		if cluster.ServerName != want {
			t.Errorf("tls-server-name is %q, want %q", cluster.ServerName, want)
		}
		verify := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: cluster.ServerName}
		verify.RootCAs.AppendCertsFromPEM(cluster.CA)
		dialer := &tls.Dialer{Config: verify}
		conn, err := dialer.DialContext(t.Context(), "tcp", s.URL()[len("https://"):])
		if err != nil {
			t.Errorf("%q: %v", want, err)
			continue
		}
		_ = conn.Close()
	}
}
