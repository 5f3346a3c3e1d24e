package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/tokencache"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

const client = "my-client"

// provider is an issuer of OpenID Connect.
type provider struct {
	*httptest.Server
	key     *ecdsa.PrivateKey
	asked   atomic.Int64 // requests for the keys
	down    atomic.Bool
	further map[string]http.HandlerFunc
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{key: newKey(t), further: map[string]http.HandlerFunc{}}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	if p.down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch r.URL.Path {
	case wellKnown, "/elsewhere":
		answer = map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"}}
	case "/keys":
		p.asked.Add(1)
		answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "k", Algorithm: "ES256",
			Use: "sig"}}}
	default:
		if h := p.further[r.URL.Path]; h != nil {
			h(w, r)
			return
		}
		http.NotFound(w, r)
		return
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

func (p *provider) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
}

// token returns a signed token with the claims that every token has, and with those in more.
func (p *provider) token(t testing.TB, more map[string]any) string {
	t.Helper()
	c := map[string]any{"iss": p.URL, "aud": client, "sub": "jane", "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix()}
	maps.Copy(c, more)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return signed(t, p.key, c)
}

func signed(t testing.TB, key *ecdsa.PrivateKey, c map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	object, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := object.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func text(s string) *string { return &s }

// config returns the smallest valid configuration of the provider.
func (p *provider) config() apiserver.JWTAuthenticator {
	return apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: p.URL, Audiences: []string{client}, CertificateAuthority: p.ca()},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: text("")}},
	}
}

func options() Options {
	return Options{Algorithms: Algorithms(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Cached: tokencache.NewMetrics(metrics.New(nil, metrics.Options{})), Now: time.Now,
		Observe: func(string, bool, time.Duration) {}}
}

// open returns the issuer of a configuration when it is ready.
func open(t testing.TB, c apiserver.JWTAuthenticator) *Issuer {
	t.Helper()
	mappings, errs := Validate(&apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{c}}, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	i, err := NewIssuer(t.Context(), &c, mappings[0], options())
	if err != nil {
		t.Fatal(err)
	}
	go i.Discover(t.Context())
	g := &configuredIssuers{issuers: []*Issuer{i}}
	if err := g.waitHealthy(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestClaimsBecomeAUser(t *testing.T) {
	p := newProvider(t)
	type change func(*apiserver.JWTAuthenticator)
	expression := func(s string) apiserver.PrefixedClaimOrExpression {
		return apiserver.PrefixedClaimOrExpression{Expression: s}
	}
	for name, c := range map[string]struct {
		change change
		claims map[string]any
		user   request.User
		err    string
	}{
		"subject": {nil, nil, request.User{Name: "jane"}, ""},
		"credential": {nil, map[string]any{"jti": "x1"},
			request.User{Name: "jane", Extra: map[string][]string{extraCredential: {"JTI=x1"}}}, ""},
		"prefix and groups": {func(j *apiserver.JWTAuthenticator) {
			j.ClaimMappings.Username.Prefix = text("corp:")
			j.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: "roles", Prefix: text("g:")}
		}, map[string]any{"roles": []string{"dev", "ops"}},
			request.User{Name: "corp:jane", Groups: []string{"g:dev", "g:ops"}}, ""},
		"one group": {func(j *apiserver.JWTAuthenticator) {
			j.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: "roles", Prefix: text("")}
		}, map[string]any{"roles": "dev"}, request.User{Name: "jane", Groups: []string{"dev"}}, ""},
		"groups of a wrong type": {func(j *apiserver.JWTAuthenticator) {
			j.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: "roles", Prefix: text("")}
		}, map[string]any{"roles": 5}, request.User{}, `oidc: parse groups claim "roles"`},
		"expressions": {func(j *apiserver.JWTAuthenticator) {
			j.ClaimMappings = apiserver.ClaimMappings{
				Username: expression(`claims.sub + ":" + claims.org.name`), Groups: expression(`claims.roles.split(",")`),
				UID: apiserver.ClaimOrExpression{Expression: "claims.id"},
				Extra: []apiserver.ExtraMapping{{Key: "example.com/a", ValueExpression: "claims.?missing.orValue('')"},
					{Key: "example.com/b", ValueExpression: "[claims.id]"}},
			}
		}, map[string]any{"org": map[string]any{"name": "corp"}, "roles": "a,b", "id": "u1"},
			request.User{Name: "jane:corp", UID: "u1", Groups: []string{"a", "b"},
				Extra: map[string][]string{"example.com/b": {"u1"}}}, ""},
		"uid claim": {func(j *apiserver.JWTAuthenticator) { j.ClaimMappings.UID.Claim = "id" }, map[string]any{"id": "u1"},
			request.User{Name: "jane", UID: "u1"}, ""},
		"email": {func(j *apiserver.JWTAuthenticator) { j.ClaimMappings.Username.Claim = "email" },
			map[string]any{"email": "j@x", "email_verified": true}, request.User{Name: "j@x"}, ""},
		"email not verified": {func(j *apiserver.JWTAuthenticator) { j.ClaimMappings.Username.Claim = "email" },
			map[string]any{"email": "j@x", "email_verified": false}, request.User{}, "oidc: email not verified"},
		"an empty name": {func(j *apiserver.JWTAuthenticator) { j.ClaimMappings.Username = expression("claims.sub") },
			map[string]any{"sub": ""}, request.User{}, "oidc: empty username via CEL expression is not allowed"},
		"a name that is no text": {func(j *apiserver.JWTAuthenticator) { j.ClaimMappings.Username = expression("claims.n") },
			map[string]any{"n": 5}, request.User{}, "username claim expression must return a string"},
		"a missing claim": {func(j *apiserver.JWTAuthenticator) { j.ClaimMappings.Username.Claim = "name" },
			nil, request.User{}, `oidc: parse username claims "name": claim not present`},
		"a required claim": {func(j *apiserver.JWTAuthenticator) {
			j.ClaimValidationRules = []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "corp"}}
		}, map[string]any{"hd": "other"}, request.User{},
			"oidc: required claim hd value does not match. Got = other, want = corp"},
		"a required claim that lacks": {func(j *apiserver.JWTAuthenticator) {
			j.ClaimValidationRules = []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "corp"}}
		}, nil, request.User{}, "oidc: required claim hd not present in ID token"},
		"a rule about claims": {func(j *apiserver.JWTAuthenticator) {
			j.ClaimValidationRules = []apiserver.ClaimValidationRule{{Expression: "claims.exp - claims.iat <= 60.0",
				Message: "too long"}}
		}, nil, request.User{}, "validation expression 'claims.exp - claims.iat <= 60.0' failed: too long"},
		"a rule about the user": {func(j *apiserver.JWTAuthenticator) {
			j.UserValidationRules = []apiserver.UserValidationRule{{Expression: "!user.username.startsWith('system:')",
				Message: "reserved"}}
		}, map[string]any{"sub": "system:admin"}, request.User{}, "failed: reserved"},
		"a rule that holds": {func(j *apiserver.JWTAuthenticator) {
			j.UserValidationRules = []apiserver.UserValidationRule{{Expression: "user.groups.all(g, g != 'x') && " +
				"user.uid == '' && !('a' in user.extra)"}}
		}, nil, request.User{Name: "jane"}, ""},
		"not yet valid": {nil, map[string]any{"nbf": time.Now().Add(200 * time.Second).Unix()}, request.User{},
			"before the nbf (not before) time"},
		"a clock behind": {nil, map[string]any{"nbf": time.Now().Add(30 * time.Second).Unix()}, request.User{Name: "jane"},
			""},
		"expired": {nil, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, request.User{},
			"oidc: verify token: oidc: token is expired"},
		"another audience": {nil, map[string]any{"aud": "other"}, request.User{},
			`expected audience in ["my-client"] got ["other"]`},
		"audiences": {func(j *apiserver.JWTAuthenticator) {
			j.Issuer.Audiences, j.Issuer.AudienceMatchPolicy = []string{"a", "b"}, apiserver.AudienceMatchPolicyMatchAny
		}, map[string]any{"aud": []string{"b", "c"}}, request.User{Name: "jane"}, ""},
	} {
		config := p.config()
		if c.change != nil {
			c.change(&config)
		}
		user, err := open(t, config).UserOfToken(t.Context(), authn.NewBearerToken(p.token(t, c.claims)))
		switch {
		case c.err != "":
			if user != nil || err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %+v %v, want %s", name, user, err, c.err)
			}
		default:
			c.user.Groups = append(c.user.Groups, request.GroupAuthenticated)
			if err != nil || !reflect.DeepEqual(user, &c.user) {
				t.Errorf("%s: %+v %v, want %+v", name, user, err, c.user)
			}
		}
	}
}

func TestForgedTokens(t *testing.T) {
	p := newProvider(t)
	i := open(t, p.config())
	good := p.token(t, nil)
	parts := strings.Split(good, ".")
	c := map[string]any{"iss": p.URL, "aud": client, "sub": "jane", "exp": time.Now().Add(time.Hour).Unix()}
	for name, token := range map[string]string{
		"another key":  signed(t, newKey(t), c),
		"no signature": parts[0] + "." + parts[1] + ".",
		"alg none":     "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"not a token":  "x",
	} {
		if user, _ := i.UserOfToken(t.Context(), authn.NewBearerToken(token)); user != nil {
			t.Errorf("%s: %+v", name, user)
		}
	}
	c["iss"] = "https://other"
	if user, err := i.UserOfToken(t.Context(), authn.NewBearerToken(signed(t, p.key, c))); user != nil || err != nil {
		t.Errorf("another issuer's: %+v %v", user, err)
	}
}

// TestForgedTokensCauseNoRequests sends tokens with key IDs that the issuer has never had. Each of them could be a new
// key, but the keys are not fetched again for each.
func TestForgedTokensCauseNoRequests(t *testing.T) {
	p := newProvider(t)
	config := p.config()
	mappings, errs := Validate(&apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{config}}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	now, o := time.Now(), options()
	o.Now = func() time.Time { return now }
	i, err := NewIssuer(t.Context(), &config, mappings[0], o)
	if err != nil {
		t.Fatal(err)
	}
	go i.Discover(t.Context())
	if err := (&configuredIssuers{issuers: []*Issuer{i}}).waitHealthy(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	forged := map[string]any{"iss": p.URL, "aud": client, "sub": "jane", "exp": now.Add(time.Hour).Unix()}
	for range 20 {
		user, err := i.UserOfToken(t.Context(), authn.NewBearerToken(signed(t, newKey(t), forged)))
		if user != nil || err == nil || !strings.Contains(err.Error(), "failed to verify id token signature") ||
			authn.RefusalOf(err).Reason != authn.ReasonSignature {
			t.Errorf("%+v, %v", user, err)
		}
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	p.key = newKey(t) // is rotated
	now = now.Add(2 * keysInterval)
	// The first try may still get the error of the last forged token: go-oidc lets callers share a fetch until a moment
	// after it has ended.
	wait.Seen(t, "a user by the new key", func() (bool, string) {
		user, err := i.UserOfToken(t.Context(), authn.NewBearerToken(p.token(t, nil)))
		return user != nil, fmt.Sprint(err)
	})
}

func TestDiscoveryURL(t *testing.T) {
	p := newProvider(t)
	config := p.config()
	config.Issuer.DiscoveryURL = text(p.URL + "/elsewhere")
	user, err := open(t, config).UserOfToken(t.Context(), authn.NewBearerToken(p.token(t, nil)))
	if err != nil || user.Name != "jane" {
		t.Errorf("%+v %v", user, err)
	}
}

func TestGroupsMayBeElsewhere(t *testing.T) {
	p := newProvider(t)
	config := p.config()
	config.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: text("")}
	p.further["/groups"] = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer key" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, p.token(t, map[string]any{"groups": []string{"far"}}))
	}
	i := open(t, config)
	names := map[string]any{"_claim_names": map[string]string{"groups": "src"}}
	for _, c := range []struct {
		sources any
		groups  []string
		err     string
	}{
		{map[string]any{"src": map[string]string{"endpoint": p.URL + "/groups", "access_token": "key"}},
			[]string{"far", request.GroupAuthenticated}, ""},
		{map[string]any{"src": map[string]string{"endpoint": p.URL + "/groups"}}, nil, "401"},
		{map[string]any{}, nil, "source does not exist"},
		{nil, nil, "source does not exist"},
	} {
		names["_claim_sources"] = c.sources
		user, err := i.UserOfToken(t.Context(), authn.NewBearerToken(p.token(t, names)))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %+v %v", c.sources, user, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(user.Groups, c.groups) {
			t.Errorf("%v: %+v %v", c.sources, user, err)
		}
	}
}

func TestIssuersAreReplacedWhenTheNewOnesAnswer(t *testing.T) {
	one, two := newProvider(t), newProvider(t)
	own := []string{"https://kubernetes.default.svc"}
	configOf := func(p *provider) (*apiserver.AuthenticationConfiguration, []*Mapping) {
		c := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{p.config()}}
		m, errs := Validate(c, own)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return c, m
	}
	c, m := configOf(one)
	s, err := NewIssuerSet(t.Context(), c, m, own, options())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.current.Load().waitHealthy(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	accepted := func(p *provider) bool {
		identity, _ := s.AuthenticateToken(t.Context(), authn.NewBearerToken(p.token(t, nil)), own)
		return identity != nil
	}
	if !accepted(one) || accepted(two) {
		t.Error("before: not the first issuer alone")
	}
	two.down.Store(true)
	c, m = configOf(two)
	if err := s.Replace(t.Context(), 10*time.Millisecond, c, m); err == nil || !accepted(one) {
		t.Errorf("an issuer that does not answer: %v", err)
	}
	two.down.Store(false)
	if err := s.Replace(t.Context(), time.Minute, c, m); err != nil || accepted(one) || !accepted(two) {
		t.Errorf("after: not the second issuer alone: %v", err)
	}
	if identity, _ := s.AuthenticateToken(t.Context(), authn.NewBearerToken(two.token(t, nil)),
		[]string{"other"}); identity != nil {
		t.Error("a token for another audience")
	}
}

func TestFlags(t *testing.T) {
	f := Flags{IssuerURL: "https://i", ClientID: "c", UsernameClaim: "sub", GroupsClaim: "g",
		RequiredClaims: map[string]string{"b": "2", "a": "1"}}
	for _, c := range []struct{ claim, prefix, want string }{
		{"sub", "", "https://i#"}, {"email", "", ""}, {"sub", "-", ""}, {"sub", "x:", "x:"},
	} {
		f.UsernameClaim, f.UsernamePrefix = c.claim, c.prefix
		j := f.Issuer()
		if got := *j.ClaimMappings.Username.Prefix; got != c.want {
			t.Errorf("%+v: prefix %q", c, got)
		}
		if _, errs := Validate(&apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{j}},
			nil); len(errs) > 0 {
			t.Error(errs)
		}
	}
}

func FuzzIssuerOf(f *testing.F) {
	p := newProvider(f)
	i := &Issuer{o: options(), config: &apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: p.URL}}}
	f.Add(p.token(f, nil))
	f.Add("a.b.c")
	f.Add("{}")
	f.Fuzz(func(t *testing.T, token string) {
		if user, _ := i.UserOfToken(context.Background(), authn.NewBearerToken(token)); user != nil {
			t.Errorf("%q is accepted by an issuer without keys", token)
		}
	})
}

// TestRunWaitsForWhatASetStarted checks that an issuer that does not answer is asked until the
// server stops, and not longer.
func TestRunWaitsForWhatASetStarted(t *testing.T) {
	asked := make(chan struct{}, 10)
	hangs := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	config := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{{
		Issuer: apiserver.Issuer{URL: hangs.URL, Audiences: []string{client}, CertificateAuthority: string(pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: hangs.Certificate().Raw}))},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: new(string)}},
	}}}
	mappings, errs := Validate(config, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := NewIssuerSet(ctx, config, mappings, nil, options())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	select {
	case <-asked:
	case <-time.After(20 * time.Second):
		t.Fatal("the issuer was not asked in 20 s")
	}
	select {
	case <-ended:
		t.Fatal("Run returned before its context ended")
	default:
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("Run did not return in the 20 s after its context ended")
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "(*IssuerSet).startIssuers") {
		t.Errorf("a goroutine is left:\n%s", stacks)
	}
	if err := s.Replace(t.Context(), time.Minute, config, mappings); !errors.Is(err, errEnded) {
		t.Errorf("issuers are replaced after the end: %v", err)
	}
}
