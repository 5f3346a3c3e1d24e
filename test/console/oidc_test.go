package console

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// issuer is an issuer of OpenID Connect that lets everybody in as one person.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu    sync.Mutex
	asked url.Values // of the authorization endpoint
	nonce string     // that the tokens get instead of the one that was asked for, unless it is empty
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/login", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.asked = r.URL.Query()
		i.mu.Unlock()
		back := url.Values{"code": {"the-code"}, "state": {i.asked.Get("state")}}
		http.Redirect(w, r, i.asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if r.FormValue("code") != "the-code" || encode(challenge[:]) != i.asked.Get("code_challenge") ||
			r.FormValue("redirect_uri") != i.asked.Get("redirect_uri") || r.FormValue("client_id") != "console" {
			w.WriteHeader(http.StatusBadRequest)
			answer(w, map[string]string{"error": "invalid_grant"})
			return
		}
		nonce := i.nonce
		if nonce == "" {
			nonce = i.asked.Get("nonce")
		}
		answer(w, map[string]string{"token_type": "Bearer", "id_token": i.token(t, nonce)})
	})
	return i
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *issuer) token(t *testing.T, nonce string) string {
	claims, err := json.Marshal(map[string]any{
		"iss": i.URL, "aud": "console", "sub": "grace", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nonce": nonce,
	})
	if err != nil {
		t.Error(err)
	}
	signed := encode([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Error(err)
	}
	return signed + "." + encode(signature)
}

// TestLoginAtIssuer logs in at an identity provider, and refuses a token that is for another login.
func TestLoginAtIssuer(t *testing.T) {
	i := newIssuer(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--oidc-issuer-url", i.URL, "--oidc-client-id", "console", "--oidc-ca-file", ca, "--oidc-username-prefix", "oidc:")
	p := browse(t, 1000, 700)
	p.do("open the console", navigate(s.url+"/console/"), visible("#token"))
	i.mu.Lock()
	i.nonce = "of-another-login"
	i.mu.Unlock()
	host := i.Listener.Addr().String()
	p.click("Log in with " + host)
	p.do("wait until it comes back", visible(".warn-text"))
	p.sees("the token of the identity provider is not for this login")
	i.mu.Lock()
	i.nonce = ""
	i.mu.Unlock()
	p.click("Log in with " + host)
	p.do("wait for the page", visible("nav.side"))
	p.sees("oidc:grace")
	i.mu.Lock()
	asked := i.asked
	i.mu.Unlock()
	if asked.Get("code_challenge_method") != "S256" || asked.Get("redirect_uri") != s.url+"/console/" || asked.Get("nonce") == "" {
		t.Errorf("the issuer was asked %v", asked)
	}
	p.until("the address has no code, and nothing is stored", `!location.search && !sessionStorage.length && !document.cookie`)
	p.do("load again", navigate(s.url+"/console/"), visible("#token")) // the token was in memory alone
	p.clean()
}
