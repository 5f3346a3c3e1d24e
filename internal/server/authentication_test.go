package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/bearer"
	"github.com/keelson-dev/keelson/internal/access/auth/serviceaccount"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// post sends a document as the administrator and returns the answer.
func post(t testing.TB, s *Server, path, body string, want int) map[string]any {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer admintoken")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.http.server.Handler.ServeHTTP(w, r)
	if w.Code != want {
		t.Fatalf("POST %s: %d %s", path, w.Code, w.Body)
	}
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// accountToken makes a service account and returns a token of it.
func accountToken(t testing.TB, s *Server, name string) string {
	t.Helper()
	post(t, s, "/api/v1/namespaces/kube-system/serviceaccounts", `{"metadata":{"name":"`+name+`"}}`, http.StatusCreated)
	out := post(t, s, "/api/v1/namespaces/kube-system/serviceaccounts/"+name+"/token", `{}`, http.StatusCreated)
	return out["status"].(map[string]any)["token"].(string)
}

// TestTokensOutliveARestart checks that the server keeps the key that it generated for tokens of service accounts.
func TestTokensOutliveARestart(t *testing.T) {
	conf := testConfig(t)
	s := start(t, conf)
	key := filepath.Join(conf.Storage.DataDir, datadir.PKI, authentication.AccountKeyName)
	token := accountToken(t, s, "robot")
	stop(t, s)
	s = start(t, conf)
	if a := apitest.Send(
		t, httpClient(t, s, false), "GET", s.URL()+"/api", "", "Authorization", "Bearer "+token,
	); a.Status != http.StatusOK {
		t.Errorf("after a restart: %d %s", a.Status, a.Body)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestOwnKeyIsWrittenWithoutARequest checks that a new data directory has the key of tokens before any request:
// kube-controller-manager reads the file.
func TestOwnKeyIsWrittenWithoutARequest(t *testing.T) {
	conf := testConfig(t)
	start(t, conf)
	key := filepath.Join(conf.Storage.DataDir, datadir.PKI, authentication.AccountKeyName)
	wait.Until(t, "the key of service account tokens is written", func() bool {
		_, err := os.Stat(key)
		return err == nil
	})
}

func TestTheIssuerIsDiscovered(t *testing.T) {
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	a := apitest.Send(t, c, "GET", s.URL()+serviceaccount.ConfigurationPath, "")
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal([]byte(a.Body), &document); err != nil || document.Issuer != config.Default().Authentication.ServiceAccounts.Issuers[0] ||
		document.Keys != s.URL()+serviceaccount.KeysPath {
		t.Errorf("%v %s", err, a.Body)
	}
	if a := apitest.Send(t, c, "GET", document.Keys, "", "Accept", "*/*"); a.Status != http.StatusOK ||
		!strings.Contains(a.Body, `"alg":"RS256"`) || strings.Contains(a.Body, `"d":`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	conf := testConfig(t)
	conf.Authentication.ServiceAccounts.Issuers = []string{"kubernetes"} // no URL
	s = start(t, conf)
	if a := apitest.Send(
		t, httpClient(t, s, true), "GET", s.URL()+serviceaccount.ConfigurationPath, "",
	); a.Status != http.StatusNotFound {
		t.Errorf("an issuer that cannot be discovered: %d", a.Status)
	}
}

// TestDiscoveryNamesTheAdvertisedAddress checks that discovery has the advertised address: clients in pods cannot
// reach the local address.
func TestDiscoveryNamesTheAdvertisedAddress(t *testing.T) {
	conf := testConfig(t)
	conf.Network.ControlPlane.AdvertiseAddress = "192.0.2.7"
	s := start(t, conf)
	c := httpClient(t, s, true)
	address := net.JoinHostPort("192.0.2.7", strconv.Itoa(s.listener.Port()))
	for path, want := range map[string]string{
		serviceaccount.ConfigurationPath: `"jwks_uri":"https://` + address + serviceaccount.KeysPath + `"`,
		"/api":                           `"serverAddress":"` + address + `"`,
	} {
		if a := apitest.Send(t, c, "GET", s.URL()+path, ""); !strings.Contains(a.Body, want) {
			t.Errorf("%s: %s, want %s", path, a.Body, want)
		}
	}
}

// authority is a certificate authority in a file.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "ca.crt")}
	pair := a.issue("ca")
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	if err := os.WriteFile(
		a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate signed by the authority. The first call makes the authority's own certificate.
func (a *authority) issue(name string, groups ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: a.cert == nil, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// with returns a client that sends a client certificate.
func with(t *testing.T, s *Server, pair tls.Certificate) *http.Client {
	t.Helper()
	c := httpClient(t, s, false)
	c.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	return c
}

// TestSpoofedHeadersAreIgnored checks that the server takes the name of the user from headers only if the client's
// certificate is one of the front proxy. (Hostile row 9.)
func TestSpoofedHeadersAreIgnored(t *testing.T) {
	proxies, clients := newAuthority(t), newAuthority(t)
	spoof := []string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters"}
	believing := testConfig(t)
	believing.Authentication.ClientCAFile = clients.file
	believing.Authentication.RequestHeader = config.RequestHeader{
		ClientCAFile: proxies.file, AllowedNames: []string{"proxy"}, UsernameHeaders: []string{"X-Remote-User"},
		GroupHeaders: []string{"X-Remote-Group"},
	}
	plain := testConfig(t)
	plain.Authentication.ClientCAFile = clients.file
	for _, c := range []struct {
		name   string
		conf   settings
		pair   *tls.Certificate
		status int
	}{
		{"the proxy", believing, ptr(proxies.issue("proxy")), http.StatusOK},
		{"another name", believing, ptr(proxies.issue("someone")), http.StatusUnauthorized},
		{"a client", believing, ptr(clients.issue("proxy")), http.StatusForbidden},
		{"nobody", believing, nil, http.StatusForbidden},
		{"the proxy, where none is believed", plain, ptr(proxies.issue("proxy")), http.StatusUnauthorized},
		{"nobody, where none is believed", plain, nil, http.StatusForbidden},
	} {
		conf := c.conf
		conf.Storage.DataDir = filepath.Join(t.TempDir(), "data")
		s := start(t, conf)
		browser := httpClient(t, s, false)
		if c.pair != nil {
			browser = with(t, s, *c.pair)
		}
		if a := apitest.Send(t, browser, "GET", s.URL()+"/api/v1/secrets", "", spoof...); a.Status != c.status {
			t.Errorf("%s: %d %s", c.name, a.Status, a.Body)
		}
		stop(t, s)
	}
}

func ptr[T any](v T) *T { return &v }

// TestProxiesAndClientsMustNotBeTheSame checks that front proxies and clients need different authorities. With a
// common one, every client could name any user. (Hostile row 10.)
func TestProxiesAndClientsMustNotBeTheSame(t *testing.T) {
	ca := newAuthority(t)
	conf := testConfig(t)
	conf.Authentication.ClientCAFile = ca.file
	conf.Authentication.RequestHeader = config.RequestHeader{
		ClientCAFile: ca.file, UsernameHeaders: []string{"X-Remote-User"},
	}
	s, err := Start(context.Background(), conf.Config, conf.Options)
	if err == nil {
		stop(t, s)
		t.Fatal("the server starts")
	}
	if want := "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; " +
		"--requestheader-allowed-names must be specified"; !strings.Contains(config.CommandLine(err), want) {
		t.Error(err)
	}
	// The server's own authority signs clients, too.
	own := testConfig(t)
	s = start(t, own)
	stop(t, s)
	own.Authentication.RequestHeader = config.RequestHeader{
		ClientCAFile: filepath.Join(own.Storage.DataDir, datadir.PKI, "ca.crt"), UsernameHeaders: []string{"X-Remote-User"},
	}
	if s, err := Start(context.Background(), own.Config, own.Options); err == nil {
		stop(t, s)
		t.Error("the server starts with its own authority for proxies")
	}
	conf.Authentication.RequestHeader.AllowedNames = []string{"proxy"}
	s = start(t, conf)
	if a := apitest.Send(
		t, with(t, s, ca.issue("jane")), "GET", s.URL()+"/api", "", "X-Remote-User", "admin",
	); a.Status != http.StatusOK {
		t.Errorf("a client beside proxies of the same authority: %d %s", a.Status, a.Body)
	}
}

// TestClientAuthoritiesAreReloaded checks that certificates of an authority that is added to the file are accepted
// without a restart.
func TestClientAuthoritiesAreReloaded(t *testing.T) {
	one, two := newAuthority(t), newAuthority(t)
	conf := testConfig(t)
	conf.Authentication.ClientCAFile, conf.fileReload = one.file, time.Millisecond
	s := start(t, conf)
	pair := two.issue("june")
	status := func() int { return apitest.Send(t, with(t, s, pair), "GET", s.URL()+"/api", "").Status }
	if got := status(); got != http.StatusUnauthorized {
		t.Errorf("before: %d", got)
	}
	content, err := os.ReadFile(two.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one.file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the certificate authority of the changed file to be trusted", func() bool { return status() == http.StatusOK })
}

func TestAnonymousIsLimited(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "authentication.yaml")
		if err := os.WriteFile(path, []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	off := testConfig(t)
	off.Authentication.NoAnonymous = true
	paths := testConfig(t)
	paths.Authentication.ConfigFile = write("anonymous: {enabled: true, conditions: [{path: /livez}]}")
	for _, c := range []struct {
		name           string
		conf           settings
		livez, healthz int
	}{
		{"as it is", testConfig(t), 200, 200},
		{"switched off", off, 401, 401},
		{"on a path", paths, 200, 401},
	} {
		s := start(t, c.conf)
		browser := httpClient(t, s, false)
		if livez, healthz := apitest.Send(t, browser, "GET", s.URL()+"/livez", "").Status, apitest.Send(
			t, browser, "GET", s.URL()+"/healthz", "",
		).Status; livez != c.livez || healthz != c.healthz {
			t.Errorf("%s: %d %d", c.name, livez, healthz)
		}
	}
	paths.Storage.DataDir = filepath.Join(t.TempDir(), "data")
	paths.FlagGiven = func(name string) bool { return name == "anonymous-auth" }
	if s, err := Start(context.Background(), paths.Config, paths.Options); err == nil {
		stop(t, s)
		t.Error("the flag and the file contradict each other, and the server starts")
	}
}

// TestTokensAreInNoLogOrMetric checks that neither the log (at its highest level), nor metrics, nor error responses
// contain a token or a usable part of one. (Row 29 of docs/reliability.md.)
func TestTokensAreInNoLogOrMetric(t *testing.T) {
	log := &apitest.Log{}
	conf := testConfig(t)
	conf.Diagnostics.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.Level(-127)}))
	conf.Authentication.BootstrapTokens = true
	s := start(t, conf)
	good := accountToken(t, s, "robot")
	forged := good[:len(good)-4] + "AAAA"
	const unknown, bootstrap = "unknown-token-of-nobody", "abcdef.0123456789abcdef"
	browser := httpClient(t, s, false)
	answers := ""
	for _, token := range []string{good, forged, unknown, bootstrap, "davetoken", "admintoken"} {
		for _, path := range []string{"/api/v1/secrets", "/healthz", "/no/such"} {
			answers += apitest.Send(t, browser, "GET", s.URL()+path, "", "Authorization", "Bearer "+token).Body
		}
		answers += apitest.Send(t, browser, "GET", s.URL()+"/api/v1/pods?watch=1&timeoutSeconds=1", "", "Connection", "Upgrade",
			"Upgrade", "websocket",
			"Sec-Websocket-Protocol", "x, "+bearer.WebSocketProtocol+base64.RawURLEncoding.EncodeToString([]byte(token+
				"x"))).Body
		review := post(
			t, s, "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"`+token+`","audiences":["x"]}}`,
			http.StatusCreated,
		)
		answers += review["status"].(map[string]any)["error"].(string)
	}
	shown := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body
	signature := good[strings.LastIndex(good, ".")+1:]
	for _, secret := range []string{
		good, signature, forged[strings.LastIndex(forged, ".")+1:], unknown, bootstrap, "davetoken", "admintoken",
	} {
		for where, text := range map[string]string{"the log": log.String(), "metrics": shown, "answers": answers} {
			if strings.Contains(text, secret) || strings.Contains(text, base64.RawURLEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("%s has %.24s...", where, secret)
			}
		}
	}
	if !strings.Contains(log.String(), "credentials") ||
		!strings.Contains(shown, `authentication_attempts{result="error"}`) {
		t.Error("the log or metrics say nothing of failures")
	}
}

// BenchmarkAuthenticatedGet measures a GET through all filters, for each way to authenticate.
func BenchmarkAuthenticatedGet(b *testing.B) {
	conf := defaultSettings()
	tokens := filepath.Join(b.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(testTokens), 0o600); err != nil {
		b.Fatal(err)
	}
	conf.Storage.DataDir, conf.Storage.Backend, conf.Serving.Port, conf.Authentication.TokenFile = "", config.StorageMemory, 0, tokens
	conf.Diagnostics.Log = slog.New(slog.DiscardHandler)
	s, err := Start(b.Context(), conf.Config, conf.Options)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Stop(context.Background()) //nolint:errcheck // errors do not matter here
	grant := func(name, subject string) {
		post(b, s, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
			`{"metadata":{"name":"`+name+`"},`+
				`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
				`"subjects":[`+subject+`]}`, http.StatusCreated)
	}
	grant("dave", `{"kind":"User","name":"dave"}`)
	grant("robot", `{"kind":"ServiceAccount","name":"robot","namespace":"kube-system"}`)
	account := accountToken(b, s, "robot")
	for name, token := range map[string]string{"static": "davetoken", "serviceaccount": account} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/kube-system", nil)
			header := []string{"Bearer " + token}
			b.ReportAllocs()
			for b.Loop() {
				r.Header["Authorization"] = header
				w := httptest.NewRecorder()
				s.http.server.Handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
