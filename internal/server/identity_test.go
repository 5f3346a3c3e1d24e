package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/server/servingcert"
)

// leafOf returns the certificate that a server shows.
func leafOf(t *testing.T, s *Server) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// TestGivenClientAuthorityIsTheOnlyOne checks that a server with --client-ca-file accepts no certificates of its own
// authority, and that its administrator can still use it.
func TestGivenClientAuthorityIsTheOnlyOne(t *testing.T) {
	conf := testConfig(t)
	given, own := newAuthority(t), conf.Storage.DataDir
	conf.Authentication.ClientCAFile = given.file
	s := start(t, conf)
	if s.Admin().Cert != nil || s.AdminToken() == "" {
		t.Errorf("administrator: certificate %q, token %q", s.Admin().Cert, s.AdminToken())
	}
	c := httpClient(t, s, false)
	admin := []string{"Authorization", "Bearer " + s.AdminToken()}
	if a := apitest.Send(t, c, "GET", s.URL()+"/metrics", "", admin...); a.Status != http.StatusOK {
		t.Errorf("the administrator's token: %d %s", a.Status, a.Body)
	}
	const published = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
	a := apitest.Send(t, c, "GET", s.URL()+published, "", admin...)
	if n := strings.Count(a.Body, "BEGIN CERTIFICATE"); n != 1 {
		t.Errorf("%d authorities are published: %s", n, a.Body)
	}
	set, err := certs.Ensure(certs.Options{Dir: datadir.Certificates(own), Serving: true, Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := set.Admin.TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify:   true, //nolint:gosec // the test is about the client
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}}
	defer transport.CloseIdleConnections()
	if a := apitest.Send(t, &http.Client{Transport: transport}, "GET", s.URL()+"/metrics", ""); a.Status != http.StatusUnauthorized {
		t.Errorf("a certificate of the server's own authority: %d", a.Status)
	}
}

// TestNoOwnCredentials checks that a server with NoOwnCredentials has no administrator and writes nothing but its serving
// certificate.
func TestNoOwnCredentials(t *testing.T) {
	keys := testConfig(t)
	first := start(t, keys)
	conf := config.KubeAPIServer()
	conf.Network.ServiceClusterIPRange = keys.Network.ServiceClusterIPRange
	conf.Storage.Backend, conf.Serving.Address, conf.Serving.Port, conf.Diagnostics.Log = config.StorageMemory, "127.0.0.1", 0, keys.Diagnostics.Log
	conf.Authentication.TokenFile, conf.Serving.TLS.CertDir = keys.Authentication.TokenFile, filepath.Join(t.TempDir(), "certs")
	conf.Authorization.Modes = []string{config.ModeRBAC}
	conf.Authentication.ServiceAccounts.Issuers = []string{"https://issuer"}
	sa := filepath.Join(keys.Storage.DataDir, datadir.PKI, authentication.AccountKeyName)
	wait.Value(t, "the file of the key of service accounts", func() (os.FileInfo, error) { return os.Stat(sa) })
	conf.Authentication.ServiceAccounts.KeyFiles, conf.Authentication.ServiceAccounts.SigningKeyFile = []string{sa}, sa
	s := start(t, settings{Config: conf})
	if s.Admin().Cert != nil || s.AdminToken() != "" || s.Kubeconfig() != nil || s.KubeconfigPath() != "" {
		t.Error("the server has an administrator of its own")
	}
	files, err := os.ReadDir(conf.Serving.TLS.CertDir)
	if err != nil || len(files) != 2 {
		t.Errorf("the directory of certificates has %v %v", files, err)
	}
	pair, err := first.Admin().TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify:   true, //nolint:gosec // the test is about the client
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}}
	defer transport.CloseIdleConnections()
	// Without a client authority, certificates are ignored, as by kube-apiserver.
	if a := apitest.Send(t, &http.Client{Transport: transport}, "GET", s.URL()+"/healthz", ""); a.Status != http.StatusOK {
		t.Errorf("a client with a certificate: %d %s", a.Status, a.Body)
	}
	a := apitest.Send(t, httpClient(t, s, false), "GET",
		s.URL()+"/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", "",
		"Authorization", "Bearer admintoken")
	if strings.Contains(a.Body, "BEGIN CERTIFICATE") {
		t.Errorf("authorities are published: %s", a.Body)
	}
}

// TestRequiredFlagsOfKubeAPIServer checks that the errors are those of kube-apiserver 1.36.
func TestRequiredFlagsOfKubeAPIServer(t *testing.T) {
	_, err := Start(t.Context(), config.KubeAPIServer(), Options{})
	for _, want := range []string{
		"--etcd-servers must be specified", "service-account-issuer is a required flag",
		"either `--service-account-key-file` or `--service-account-signing-endpoint` must be set",
		"--service-account-signing-key-file and --service-account-issuer are required flags",
	} {
		if err == nil || !strings.Contains(config.CommandLine(err), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestNamesOfTheServingCertificate(t *testing.T) {
	conf := testConfig(t)
	conf.Network.ControlPlane.AdvertiseAddress = "10.9.8.7"
	conf.Serving.TLS.AlternativeNames = []string{"api.example.com", "10.1.1.1"}
	conf.Serving.ExternalHostname = "outside.example.com"
	var lines apitest.Log
	conf.Diagnostics.Log = slog.New(slog.NewTextHandler(&lines, nil))
	leaf := leafOf(t, start(t, conf))
	for _, name := range []string{"10.9.8.7", "api.example.com", "10.1.1.1", "outside.example.com", "localhost", "127.0.0.1"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(lines.String(), "does not listen on the address that it advertises") {
		t.Errorf("no warning of the advertised address: %s", lines.String())
	}
}

// TestOwnCertificatesAreRenewedWhileRunning removes the certificates in the data directory. This has the same
// effect as certificates that expire soon.
func TestOwnCertificatesAreRenewedWhileRunning(t *testing.T) {
	conf := testConfig(t)
	conf.fileReload = time.Millisecond
	conf.Serving.TLS.CertDir = filepath.Join(t.TempDir(), "certs")
	s := start(t, conf)
	frontProxy := func() *tls.Certificate {
		c, _ := s.identity.FrontProxy()
		return c
	}
	before, proxy := leafOf(t, s), frontProxy()
	kubeconfig := string(s.Kubeconfig())
	pki := datadir.Certificates(conf.Storage.DataDir)
	for _, name := range []string{"apiserver.crt", "admin.crt", "front-proxy-client.crt"} {
		if err := os.Remove(filepath.Join(pki, name)); err != nil {
			t.Fatal(err)
		}
	}
	renewed := func() bool {
		file, _ := os.ReadFile(s.KubeconfigPath()) // an error is no problem: the file is just being replaced
		pair, err := tls.LoadX509KeyPair(filepath.Join(conf.Serving.TLS.CertDir, servingcert.CertName),
			filepath.Join(conf.Serving.TLS.CertDir, servingcert.KeyName))
		now := leafOf(t, s)
		return !now.Equal(before) && frontProxy() != proxy && string(file) != kubeconfig &&
			string(file) == string(s.Kubeconfig()) && err == nil && pair.Leaf.Equal(now)
	}
	wait.Until(t, "the certificates to be renewed", renewed)
	if string(s.CA()) == "" || leafOf(t, s).Equal(before) {
		t.Error("the certificate before is served")
	}
	stop(t, s)
	// The copy in --cert-dir is not mistaken for a certificate of the operator.
	conf.Serving.TLS.AlternativeNames = []string{"new.example.com"}
	if err := leafOf(t, start(t, conf)).VerifyHostname("new.example.com"); err != nil {
		t.Errorf("after another start: %v", err)
	}
}

// TestStaticTokensAndPoliciesAreReloaded replaces the files of --token-auth-file and --authorization-policy-file.
func TestStaticTokensAndPoliciesAreReloaded(t *testing.T) {
	conf := testConfig(t)
	conf.fileReload = time.Hour // only Reload makes the server read the files
	policies := filepath.Join(t.TempDir(), "policies")
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(policies, "")
	conf.Authorization.Modes, conf.Authorization.PolicyFile = []string{config.ModeABAC}, policies
	s := start(t, conf)
	c := httpClient(t, s, false)
	get := func() int {
		return apitest.Send(t, c, "GET", s.URL()+"/api/v1/nodes", "", "Authorization", "Bearer another").Status
	}
	await := func(want int) {
		t.Helper()
		wait.Seen(t, fmt.Sprintf("the status %d", want), func() (bool, string) {
			got := get()
			if got != want {
				s.Reload() // the reading of the files may have just begun
			}
			return got == want, fmt.Sprint(got)
		})
	}
	await(http.StatusUnauthorized)
	write(conf.Authentication.TokenFile, "another,jane,1\n")
	await(http.StatusForbidden)
	write(policies, `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"jane","resource":"*"}}`)
	await(http.StatusOK)
	write(conf.Authentication.TokenFile, "damaged\n") // the content that was in effect remains in effect
	await(http.StatusOK)
	write(conf.Authentication.TokenFile, "")
	await(http.StatusUnauthorized)
}

// TestErrorsOfFilesNameTheFlag has files that are missing, and files with content of the wrong type.
func TestErrorsOfFilesNameTheFlag(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/nonexistent", other} {
		for flag, set := range map[string]func(*settings){
			"--client-ca-file":                func(c *settings) { c.Authentication.ClientCAFile = file },
			"--requestheader-client-ca-file":  func(c *settings) { c.Authentication.RequestHeader.ClientCAFile = file },
			"--etcd-cafile":                   func(c *settings) { c.Storage.Etcd.CAFile = file },
			"--kubelet-certificate-authority": func(c *settings) { c.Network.Connections.KubeletCAFile = file },
			"--tls-cert-file":                 func(c *settings) { c.Serving.TLS.CertFile, c.Serving.TLS.KeyFile = file, file },
			"--etcd-certfile":                 func(c *settings) { c.Storage.Etcd.CertFile, c.Storage.Etcd.KeyFile = file, file },
			"--kubelet-client-certificate": func(c *settings) {
				c.Network.Connections.KubeletCertFile, c.Network.Connections.KubeletKeyFile = file, file
			},
			"--proxy-client-cert-file": func(c *settings) {
				c.Network.Aggregation.ProxyClientCertFile, c.Network.Aggregation.ProxyClientKeyFile = file, file
			},
		} {
			conf := testConfig(t)
			set(&conf)
			if _, err := Start(t.Context(), conf.Config, conf.Options); err == nil || !strings.HasPrefix(config.CommandLine(err), flag) {
				t.Errorf("%s=%s: %v", flag, file, err)
			}
		}
	}
}
