package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestConsole checks servers with the console, without it, and without anonymous requests, which it needs.
func TestConsole(t *testing.T) {
	const page, settings = "/console/", "/console/config.json"
	browser := []string{"Accept", "text/html"}
	for name, c := range map[string]struct {
		console, noAnonymous bool
		page, front          int
	}{
		"on": {true, false, 200, 200}, "off": {false, false, 403, 200}, "no anonymous requests": {true, true, 401, 401},
	} {
		config := testConfig(t)
		config.Serving.Console, config.Authentication.NoAnonymous = c.console, c.noAnonymous
		s := start(t, config)
		anybody := httpClient(t, s, false)
		ask := func(path string, headers ...string) apitest.Answer {
			t.Helper()
			return apitest.Send(t, anybody, "GET", s.URL()+path, "", headers...)
		}
		if a := ask(page); a.Status != c.page || (a.Status == 200) != strings.Contains(a.Body, `name="csp-nonce" content="`) {
			t.Errorf("%s: %d %v %s", name, a.Status, a.Header, a.Body)
		}
		if a := ask(settings); a.Status != c.page || a.Status == 200 && !strings.Contains(a.Body, `"proxied":false,"oidc":null}`) {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
		if a := ask("/", browser...); a.Status != c.front || strings.Contains(a.Body, `href="/console/"`) != (c.page == 200) {
			t.Errorf("%s: /: %d %s", name, a.Status, a.Body)
		}
		if (s.ConsoleURL() == s.URL()+page) != (c.page == 200) {
			t.Errorf("%s: the console is at %q", name, s.ConsoleURL())
		}
		admin := httpClient(t, s, true)
		if a := apitest.Send(t, admin, "GET", s.URL()+"/", ""); a.Status != 200 || strings.Contains(a.Body, "console") {
			t.Errorf("%s: the paths are %s", name, a.Body)
		}
		if a := apitest.Send(t, admin, "GET", s.URL()+"/consoles", ""); a.Status != 404 {
			t.Errorf("%s: %d", name, a.Status)
		}
		if a := apitest.Send(t, admin, "GET", s.URL()+page, ""); c.page != 200 && a.Status != 404 {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
}

// TestOpenPagesFollowTheRule checks that a page without credentials is served only if the rule for anonymous
// requests allows its path.
func TestOpenPagesFollowTheRule(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: "
	body := `{"code":"c","codeVerifier":"` + strings.Repeat("v", 43) + `","redirectURI":"x"}`
	for name, c := range map[string]struct {
		file         string
		allowAll     bool
		page, front  int
		loginRefused bool
	}{
		"a file that allows them":              {file: head + "true\n", page: 200, front: 200},
		"a file that forbids them":             {file: head + "false\n", page: 401, front: 401, loginRefused: true},
		"a file that allows the health checks": {file: head + "true\n  conditions: [{path: /livez}, {path: /readyz}]\n", page: 401, front: 401, loginRefused: true},
		"a file that allows the console":       {file: head + "true\n  conditions: [{path: /console/}]\n", page: 200, front: 401},
		"a file that allows the front page":    {file: head + "true\n  conditions: [{path: /}]\n", page: 401, front: 200, loginRefused: true},
		"AlwaysAllow":                          {allowAll: true, page: 401, front: 401, loginRefused: true},
	} {
		t.Run(name, func(t *testing.T) {
			conf := testConfig(t)
			conf.Serving.Console = true
			if c.file != "" {
				conf.Authentication.ConfigFile = filepath.Join(t.TempDir(), "authentication.yaml")
				if err := os.WriteFile(conf.Authentication.ConfigFile, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.allowAll {
				conf.Authorization.Modes = []string{config.ModeAlwaysAllow}
			}
			s := start(t, conf)
			anybody := httpClient(t, s, false)
			for _, path := range []string{"/console/", "/console/config.json"} {
				if a := apitest.Send(t, anybody, "GET", s.URL()+path, ""); a.Status != c.page {
					t.Errorf("%s: %d %s", path, a.Status, a.Body)
				}
			}
			if a := apitest.Send(t, anybody, "GET", s.URL()+"/", "", "Accept", "text/html"); a.Status != c.front ||
				c.page != 200 && strings.Contains(a.Body, "/console/") {
				t.Errorf("/: %d %s", a.Status, a.Body)
			}
			a := apitest.Send(t, anybody, "POST", s.URL()+"/console/oidc/token", body, "Origin", s.URL())
			if (a.Status == http.StatusUnauthorized) != c.loginRefused {
				t.Errorf("the token exchange: %d %s", a.Status, a.Body)
			}
			if (s.ConsoleURL() != "") != (c.page == 200) {
				t.Errorf("the console is at %q", s.ConsoleURL())
			}
		})
	}
}

// TestConsoleLogin logs in at an issuer, and uses the token.
func TestConsoleLogin(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{
			"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		}
		switch r.URL.Path {
		case "/keys":
			answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}}
		case "/token":
			answer = map[string]any{"id_token": p.token(t, "jane")}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(p.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(p.ca()), 0o600); err != nil {
		t.Fatal(err)
	}
	config := testConfig(t)
	config.Serving.Console = true
	o := &config.Authentication.OIDC
	o.IssuerURL, o.ClientID, o.CAFile, o.SigningAlgorithms = p.URL, "keelson", ca, []string{"ES256"}
	s := start(t, config)
	c := httpClient(t, s, false)
	if a := apitest.Send(t, c, "GET", s.URL()+"/console/config.json", ""); !strings.Contains(a.Body,
		`"oidc":{"authorizationEndpoint":"`+p.URL+`/authorize","clientID":"keelson","scopes":["openid","profile","email"]}`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	body := `{"code":"c","codeVerifier":"` + strings.Repeat("v", 43) + `","redirectURI":"` + s.URL() + `/console/"}`
	if a := apitest.Send(t, c, "POST", s.URL()+"/console/oidc/token", body, "Origin", "https://evil.example"); a.Status != 403 {
		t.Errorf("a page of another origin: %d %s", a.Status, a.Body)
	}
	a := apitest.Send(t, c, "POST", s.URL()+"/console/oidc/token", body, "Origin", s.URL())
	var answer struct{ Token string }
	if err := json.Unmarshal([]byte(a.Body), &answer); err != nil || a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	awaitUser(t, s, answer.Token)
	if got := whoIs(t, s, answer.Token); !strings.Contains(got, "#jane") {
		t.Errorf("the user is %s", got)
	}
}
