package hostile

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage/encrypt/kmstest"
)

// The attacks in this file need another program or a disk.

const (
	issuerURLFile = "issuer-url"
	issuerCAFile  = "issuer.crt"
	issuerKeyFile = "issuer-key.json"
	audience      = "hostile"
)

// serveIssuer runs an OpenID Connect issuer in the server's process. It writes its address and its key to dir, so that
// the attack can sign tokens.
func serveIssuer(dir string, c *config.Config) {
	must := func(err error) {
		if err != nil {
			panic(err) // the output of the test shows it
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	var issuer *httptest.Server
	issuer = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any = map[string]any{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"}
		if r.URL.Path == "/keys" {
			answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}}
		}
		must(json.NewEncoder(w).Encode(answer))
	}))
	private, err := jose.JSONWebKey{Key: key, KeyID: "k"}.MarshalJSON()
	must(err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw})
	for name, content := range map[string][]byte{
		issuerURLFile: []byte(issuer.URL), issuerCAFile: certificate, issuerKeyFile: private,
	} {
		must(os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	o := &c.Authentication.OIDC
	o.IssuerURL, o.ClientID, o.CAFile = issuer.URL, audience, filepath.Join(dir, issuerCAFile)
	o.UsernamePrefix, o.SigningAlgorithms = "oidc:", []string{"ES256"}
}

// issuerTokens sends tokens that the issuer has signed but that are not valid now or for this server, and tokens that
// it has not signed.
func issuerTokens(a *attack) {
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(a.server.dir, name))
		if err != nil {
			a.Fatal(err)
		}
		return content
	}
	var own jose.JSONWebKey
	if err := own.UnmarshalJSON(read(issuerKeyFile)); err != nil {
		a.Fatal(err)
	}
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	token := func(key any, claims map[string]any) string {
		all := map[string]any{
			"iss": string(read(issuerURLFile)), "aud": audience, "sub": "jane", "exp": time.Now().Add(time.Hour).Unix(),
		}
		maps.Copy(all, claims)
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
		if err != nil {
			a.Fatal(err)
		}
		signed, err := signer.Sign(encode(all))
		if err != nil {
			a.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			a.Fatal(err)
		}
		return text
	}
	who := func(token string) *answer {
		c := newClient(a.T, a.server.url, token, false)
		defer c.close()
		return c.send(http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", jsonType,
			[]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
	}
	wait.NoError(a, "a valid token to be believed", func() error { // the server fetches the keys first
		if got := who(token(own, nil)); got.status != http.StatusCreated || !strings.Contains(string(got.body), "oidc:jane") {
			return fmt.Errorf("%d %s", got.status, shorten(string(got.body)))
		}
		return nil
	})
	at := func(seconds int64) int64 { return time.Now().Unix() + seconds }
	for name, refused := range map[string]string{
		"not valid before 200 s":  token(own, map[string]any{"nbf": at(200)}),
		"not valid before a day":  token(own, map[string]any{"nbf": at(86400)}),
		"expired":                 token(own, map[string]any{"exp": at(-200)}),
		"for others":              token(own, map[string]any{"aud": "others"}),
		"of another issuer":       token(own, map[string]any{"iss": "https://example.com"}),
		"signed with another key": token(jose.JSONWebKey{Key: foreign, KeyID: "k"}, nil),
		"without a signature":     token(own, nil)[:40] + ".e30.",
	} {
		if got := who(refused); got.status != http.StatusUnauthorized {
			a.Errorf("a token %s: %d %s", name, got.status, shorten(string(got.body)))
		}
	}
}

// kmsSocket is the path, below its directory, at which a server with the configuration "kms" expects its KMS plug-in.
const kmsSocket = "kms"

// encryptSecrets configures the encryption of Secrets with the plug-in.
func encryptSecrets(dir string, c *config.Config) {
	c.Storage.EncryptionConfigFile = filepath.Join(dir, "encryption.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: " +
		"[secrets]\n  providers:\n" +
		"  - kms: {apiVersion: v2, name: vault, endpoint: 'unix://" + filepath.Join(dir, kmsSocket) + "', timeout: 3s}\n"
	if err := os.WriteFile(c.Storage.EncryptionConfigFile, []byte(text), 0o600); err != nil {
		panic(err) // the output of the test shows it
	}
}

// TestHangingKeyManagement starts a server again while its KMS plug-in hangs. Other resources must be served, also
// while many requests wait for Secrets, and Secrets must be readable when the plug-in answers. Package registry tests,
// with two servers on one store, that the cache waits for no plug-in.
func TestHangingKeyManagement(t *testing.T) {
	dir, err := os.MkdirTemp("", "kms") // short enough for a socket address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugin, err := kmstest.Start(filepath.Join(dir, kmsSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plugin.Stop)
	const secrets, path = 20, "/api/v1/namespaces/default/secrets"
	first := startServer(t, "kms", dir)
	admin := newClient(t, first.url, adminToken, false)
	for i := range secrets {
		body := fmt.Sprintf(`{"metadata":{"name":"s-%d"},"stringData":{"k":"v"}}`, i)
		admin.send(http.MethodPost, path, jsonType, []byte(body)).want(t, http.StatusCreated)
	}
	admin.close()
	if stopped, err := first.ask(stop); err != nil || stopped.Failure != "" {
		t.Fatalf("the stop failed: %s %v", stopped.Failure, err)
	}
	first.kill()

	plugin.Hang()
	t.Cleanup(plugin.Resume)
	second := startServer(t, "kms", dir)
	admin = newClient(t, second.url, adminToken, false)
	defer admin.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waiting := make(chan *answer, secrets)
	for i := range secrets {
		go func() {
			waiting <- admin.sendContext(ctx, http.MethodGet, fmt.Sprintf("%s/s-%d?timeout=20s", path, i), "", nil)
		}()
	}
	for range 50 {
		admin.get("/api/v1/namespaces/default").want(t, http.StatusOK)
		admin.get("/api/v1/configmaps").want(t, http.StatusOK)
	}
	admin.send(
		http.MethodPost, "/api/v1/namespaces/default/configmaps", jsonType, encode(configMap("c", 10)),
	).want(t, http.StatusCreated)
	for range secrets {
		if got := <-waiting; got.status == http.StatusOK || got.status == http.StatusNotFound {
			t.Errorf("a secret that nobody can decrypt: %d %s", got.status, shorten(string(got.body)))
		}
	}
	plugin.Resume()
	wait.NoError(t, "the secrets to be read", func() error {
		if got := admin.get(path); got.status != http.StatusOK || strings.Count(string(got.body), `"name":"s-`) != secrets {
			return fmt.Errorf("%d %s", got.status, shorten(string(got.body)))
		}
		return nil
	})
}
