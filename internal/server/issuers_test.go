package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/reload"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// provider is an issuer of OpenID Connect.
type provider struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any = map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys"}
		if r.URL.Path == "/keys" {
			answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
}

func (p *provider) token(t *testing.T, user string) string {
	t.Helper()
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: "k"}}, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(
		map[string]any{
			"iss": p.URL, "aud": "keelson", "sub": user, "groups": []string{"dev"}, "exp": time.Now().Add(time.Hour).Unix(),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// configuration returns an AuthenticationConfiguration for the provider.
func (p *provider) configuration(prefix string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: " +
		p.URL +
		"\n    audiences: [keelson]\n    certificateAuthority: |\n      " + strings.ReplaceAll(
		strings.TrimSpace(p.ca()), "\n", "\n      ",
	) +
		"\n  claimMappings:\n    username: {expression: '\"" + prefix + "\" + claims.sub'}\n    groups: {claim: groups," +
		" prefix: 'oidc:'}\n"
}

// awaitUser waits until the token is accepted for a path that authenticated users may read.
func awaitUser(t *testing.T, s *Server, token string) {
	t.Helper()
	c := httpClient(t, s, false)
	wait.Seen(t, "the user of the token to be known", func() (bool, string) {
		a := apitest.Send(t, c, "GET", s.URL()+"/api", "", "Authorization", "Bearer "+token)
		return a.Status == http.StatusOK, a.Body
	})
}

// whoIs answers the name and groups of a token's user by a TokenReview.
func whoIs(t *testing.T, s *Server, token string) string {
	t.Helper()
	out := post(t, s, "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"`+token+`"}}`, http.StatusCreated)
	user := out["status"].(map[string]any)["user"].(map[string]any)
	if user["username"] == nil {
		return ""
	}
	text, err := json.Marshal([]any{user["username"], user["groups"]})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnIssuerByFlags(t *testing.T) {
	p := newProvider(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(p.ca()), 0o600); err != nil {
		t.Fatal(err)
	}
	config := testConfig(t)
	o := &config.Authentication.OIDC
	o.IssuerURL, o.ClientID, o.CAFile, o.GroupsClaim, o.SigningAlgorithms = p.URL, "keelson", ca, "groups",
		[]string{"ES256"}
	s := start(t, config)
	token := p.token(t, "jane")
	awaitUser(t, s, token)
	if got, want := whoIs(t, s, token), `["`+p.URL+`#jane",["dev","system:authenticated"]]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestIssuersAreReloaded(t *testing.T) {
	one, two := newProvider(t), newProvider(t)
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(one.configuration("a:"))
	config := testConfig(t)
	config.Authentication.ConfigFile, config.fileReload = path, time.Millisecond
	s := start(t, config)
	first, second := one.token(t, "jane"), two.token(t, "june")
	awaitUser(t, s, first)
	if got, want := whoIs(t, s, first), `["a:jane",["oidc:dev","system:authenticated"]]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := whoIs(t, s, second); got != "" {
		t.Errorf("a token of an issuer that is not configured: %s", got)
	}
	failures := func() bool {
		shown := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/metrics", "").Body
		return strings.Contains(
			shown,
			`apiserver_authentication_config_controller_automatic_reloads_total{apiserver_id_hash="`+reload.Hash(
				[]byte(s.listener.HostPort()),
			)+`",status="failure"}`,
		)
	}
	write(two.configuration("b:") + "anonymous: {enabled: false}\n") // a reload cannot change it
	wait.Until(t, "the metric of the failed reload", failures)
	if got := whoIs(t, s, first); got == "" || whoIs(t, s, second) != "" {
		t.Error("a configuration that cannot be used is")
	}
	write(two.configuration("b:"))
	awaitUser(t, s, second)
	if got, want := whoIs(t, s, second), `["b:june",["oidc:dev","system:authenticated"]]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := whoIs(t, s, first); got != "" {
		t.Errorf("a token of an issuer that is gone: %s", got)
	}
}
