package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/filter/deadline"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// issuer is an issuer of OpenID Connect that knows one code.
type issuer struct {
	*httptest.Server
	asked    atomic.Int64 // requests for the discovery document
	document map[string]any
	token    http.HandlerFunc
}

const (
	goodCode     = "abc"
	goodVerifier = "0123456789012345678901234567890123456789012"
)

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			i.asked.Add(1)
			_ = json.NewEncoder(w).Encode(i.document)
		case "/token":
			i.token(w, r)
		default:
			t.Errorf("the issuer gets a request for %s", r.URL)
		}
	}))
	t.Cleanup(i.Close)
	i.document = map[string]any{
		"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"scopes_supported": []string{"openid", "email", "groups"},
	}
	i.token = i.exchange
	return i
}

// exchange answers with an ID token if all parameters are those of the test.
func (i *issuer) exchange(w http.ResponseWriter, r *http.Request) {
	for name, want := range map[string]string{
		"grant_type": "authorization_code", "client_id": "web", "code": goodCode, "code_verifier": goodVerifier,
		"redirect_uri": "https://example.com/console/",
	} {
		if got := r.PostFormValue(name); got != want {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": name + "\x1b is wrong"})
			return
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id_token": idToken(`{"exp":1800000000}`), "token_type": "Bearer"})
}

func idToken(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func (i *issuer) page(t *testing.T, now func() time.Time) *Handler {
	t.Helper()
	return testPage(t, Options{Now: now, Issuers: func() []Issuer {
		return []Issuer{{URL: i.URL, ClientID: "web", Client: i.Client()}}
	}})
}

// exchange sends a token request to a handler. change may first alter the request.
func exchange(h http.Handler, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "https://example.com/console/oidc/token", strings.NewReader(body))
	r.Header.Set("Origin", "https://example.com")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const goodBody = `{"code":"` + goodCode + `","codeVerifier":"` + goodVerifier + `","redirectURI":"https://example.com/console/"}`

func TestLogin(t *testing.T) {
	i := newIssuer(t)
	h := i.page(t, nil)
	config := get(h, "GET", "/console/config.json").Body.String()
	if want := `"oidc":{"authorizationEndpoint":"` + i.URL + `/authorize","clientID":"web","scopes":["openid","email","groups"]}`; !strings.Contains(config, want) {
		t.Errorf("%s has no %s", config, want)
	}
	w := exchange(h, goodBody, nil)
	if want := `{"token":"` + idToken(`{"exp":1800000000}`) + `","expires":"2027-01-15T08:00:00Z"}`; w.Code != 200 || w.Body.String() != want ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if n := i.asked.Load(); n != 1 {
		t.Errorf("%d requests for the discovery document", n)
	}
}

func TestRefusedLogins(t *testing.T) {
	i := newIssuer(t)
	h := i.page(t, nil)
	i.token = func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("code") != "none" {
			i.exchange(w, r)
			return
		}
		t.Error("the issuer was asked")
	}
	never := strings.Replace(goodBody, goodCode, "none", 1)
	for name, c := range map[string]struct {
		body    string
		change  func(*http.Request)
		code    int
		message string
	}{
		"another origin": {never, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403, "only the console itself"},
		"no origin":      {never, func(r *http.Request) { r.Header.Del("Origin") }, 403, "only the console itself"},
		"null origin":    {never, func(r *http.Request) { r.Header.Set("Origin", "null") }, 403, "only the console itself"},
		"two origins":    {never, func(r *http.Request) { r.Header.Add("Origin", "https://example.com") }, 403, "only the console itself"},
		"without TLS":    {never, func(r *http.Request) { r.Header.Set("Origin", "http://example.com") }, 403, "only the console itself"},
		"cross-site":     {never, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "only the console itself"},
		"same-site":      {never, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403, "only the console itself"},
		"a form":         {never, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "application/json"},
		"another address of return": {strings.Replace(never, "example.com", "evil.example", 1), nil, 400,
			"redirectURI must be https://example.com/console/"},
		"another path":    {strings.Replace(never, "/console/", "/api/", 1), nil, 400, "redirectURI must be"},
		"a query":         {strings.Replace(never, "/console/", "/console/?x", 1), nil, 400, "redirectURI must be"},
		"no code":         {strings.Replace(never, "none", "", 1), nil, 400, "code must have"},
		"a long code":     {strings.Replace(never, "none", strings.Repeat("x", maxCode+1), 1), nil, 400, "code must have"},
		"short verifier":  {strings.Replace(never, goodVerifier, "x", 1), nil, 400, "codeVerifier must have"},
		"no JSON":         {"code=none", nil, 400, "cannot be read"},
		"too large":       {`{"x":"` + strings.Repeat("x", maxTokenRequest) + `"}`, nil, 413, "cannot be read"},
		"an unknown code": {strings.Replace(goodBody, goodCode, "other", 1), nil, 401, "the issuer refuses the code: invalid_grant: code is wrong"},
		"another verifier": {strings.Replace(goodBody, goodVerifier, goodVerifier+"x", 1), nil, 401,
			"the issuer refuses the code: invalid_grant: code_verifier is wrong"},
	} {
		w := exchange(h, c.body, c.change)
		var s struct {
			Kind, Message string
			Code          int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != c.code || s.Code != c.code || s.Kind != "Status" ||
			!strings.Contains(s.Message, c.message) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if w := exchange(testPage(t, Options{}), goodBody, nil); w.Code != 404 {
		t.Errorf("without issuers: %d", w.Code)
	}
	none := testPage(t, Options{Issuers: func() []Issuer { return nil }})
	if w := exchange(none, goodBody, nil); w.Code != 404 {
		t.Errorf("with no issuer: %d", w.Code)
	}
}

// TestBadIssuers has issuers with wrong responses.
func TestBadIssuers(t *testing.T) {
	redirected := false
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected = true }))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		token   http.HandlerFunc
		message string
	}{
		"huge":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+1)) }, "larger than 1048576 bytes"},
		"no JSON":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "it answers 200, and no JSON"},
		"failure":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); _, _ = w.Write([]byte("{}")) }, "it answers 500"},
		"no ID token": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"access_token":"x"}`)) }, "no ID token"},
		"not a token": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id_token":"x.y"}`)) }, "three parts"},
		"no end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"id_token":"` + idToken("{}") + `"}`))
		}, "no time exp"},
		"aborts": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "/token"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "it answers 307"},
	} {
		i := newIssuer(t)
		i.token = c.token
		h, log := i.page(t, nil), &bytes.Buffer{}
		h.login.Log = slog.New(slog.NewTextHandler(log, nil))
		// Users do not see the cause, which may contain addresses that they must not see.
		if w := exchange(h, goodBody, nil); w.Code != 502 || !strings.Contains(w.Body.String(), `"message":"the issuer of tokens cannot be used"`) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if !strings.Contains(log.String(), c.message) {
			t.Errorf("%s: the log has %q", name, log)
		}
	}
	if redirected {
		t.Error("the code was sent to another server")
	}
	for name, change := range map[string]func(map[string]any){
		"another issuer":       func(d map[string]any) { d["issuer"] = "https://evil.example" },
		"no token endpoint":    func(d map[string]any) { delete(d, "token_endpoint") },
		"endpoint without TLS": func(d map[string]any) { d["authorization_endpoint"] = "http://evil.example" },
		"a script":             func(d map[string]any) { d["authorization_endpoint"] = "javascript:alert(1)" },
		"huge":                 func(d map[string]any) { d["x"] = strings.Repeat("x", maxAnswer) },
	} {
		i := newIssuer(t)
		change(i.document)
		h := i.page(t, nil)
		if body := get(h, "GET", "/console/config.json").Body.String(); !strings.HasSuffix(body, `"oidc":null}`) {
			t.Errorf("%s: %s", name, body)
		}
		if w := exchange(h, goodBody, nil); w.Code != 502 || strings.Contains(w.Body.String(), i.URL) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if n := i.asked.Load(); n != 1 {
			t.Errorf("%s: %d requests for the discovery document", name, n)
		}
	}
}

// TestTheFirstGoodIssuerIsUsed has two issuers. The first one has no discovery document, so the second one is
// used.
func TestTheFirstGoodIssuerIsUsed(t *testing.T) {
	bad, good := newIssuer(t), newIssuer(t)
	bad.document = nil
	h := testPage(t, Options{Issuers: func() []Issuer {
		return []Issuer{{URL: bad.URL, ClientID: "x", Client: bad.Client()}, {URL: good.URL, ClientID: "web", Client: good.Client()}}
	}})
	if w := exchange(h, goodBody, nil); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestDiscoveryIsCached advances a clock, and counts the requests for discovery documents.
func TestDiscoveryIsCached(t *testing.T) {
	i, now := newIssuer(t), time.Now()
	h := i.page(t, func() time.Time { return now })
	ask := func(want int64) {
		t.Helper()
		get(h, "GET", "/console/config.json")
		if n := i.asked.Load(); n != want {
			t.Errorf("%d requests, want %d", n, want)
		}
	}
	if get(h, "GET", "/console/"); i.asked.Load() != 0 {
		t.Error("the document was requested before anybody asked")
	}
	ask(1)
	now = now.Add(foundTTL - 1)
	ask(1)
	now = now.Add(1)
	i.document["issuer"] = "other"
	ask(2)
	now = now.Add(failedTTL - 1)
	ask(2)
	now = now.Add(1)
	ask(3)
}

// TestSlowIssuers has an issuer that does not respond until the test ends. One address that has taken its places
// must not block logins from others. A login that waits for too long is refused, and the deadline of a request
// ends it.
func TestSlowIssuers(t *testing.T) {
	i := newIssuer(t)
	release, arrived := make(chan struct{}), make(chan struct{}, addressExchanges)
	i.token = func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("code") == goodCode {
			i.exchange(w, r)
			return
		}
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	h := i.page(t, nil)
	fake := strings.Replace(goodBody, goodCode, "fake", 1)
	codes := make(chan int, addressExchanges)
	for range addressExchanges {
		go func() { codes <- exchange(h, fake, nil).Code }()
	}
	for range addressExchanges {
		<-arrived
	}
	gone, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	w := exchange(h, goodBody, func(r *http.Request) { *r = *r.WithContext(gone) })
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("the same address: %d %s", w.Code, w.Body)
	}
	if w := exchange(h, goodBody, func(r *http.Request) { r.RemoteAddr = "192.0.2.99:1" }); w.Code != 200 {
		t.Errorf("another address: %d %s", w.Code, w.Body)
	}
	close(release)
	for range addressExchanges {
		if code := <-codes; code != 502 {
			t.Errorf("an empty answer: %d", code)
		}
	}
	i.token = func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // net/http notices that the client is gone once the body is read
		<-r.Context().Done()
	}
	h.login.patience = 10 * time.Millisecond
	if w := exchange(h, goodBody, nil); w.Code != 504 || !strings.Contains(w.Body.String(), "does not answer in time") {
		t.Errorf("an issuer that does not answer: %d %s", w.Code, w.Body)
	}
}

// TestSlowBodies has clients that send only a part of a body. The handler runs behind the filter deadline of the
// server. The clients get a response soon, and no goroutine or connection is left.
func TestSlowBodies(t *testing.T) {
	for _, version := range []int{1, 2} {
		h := newIssuer(t).page(t, nil)
		h.login.patience = 50 * time.Millisecond
		returned := make(chan struct{}, 1)
		filtered := deadline.New(deadline.Options{
			Limit: time.Hour, Grace: wait, Stopping: t.Context(), Running: &atomic.Int64{},
			Abandoned: func(bool) { t.Error("a handler was abandoned") },
		})(h)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			filtered.ServeHTTP(w, r.WithContext(request.WithInfo(r.Context(), request.ParseInfo(r))))
			returned <- struct{}{}
		}))
		closed := make(chan struct{}, 1)
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed <- struct{}{}
			}
		}
		s.EnableHTTP2 = version == 2
		s.StartTLS()
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		body, rest := io.Pipe()
		defer rest.Close()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+tokenPath, body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = int64(len(goodBody))
		r.Header = http.Header{"Origin": {s.URL}, "Content-Type": {"application/json"}}
		go func() { _, _ = rest.Write([]byte(goodBody[:10])) }()
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusRequestTimeout || response.ProtoMajor != version || !strings.Contains(string(text), "in time") {
			t.Errorf("%s: %d %s %v", response.Proto, response.StatusCode, text, err)
		}
		<-returned
		if version == 1 { // with HTTP/2 the connection serves other requests
			select {
			case <-closed:
			case <-ctx.Done():
				t.Error("the server keeps the connection")
			}
			continue
		}
		r, err = http.NewRequestWithContext(ctx, http.MethodGet, s.URL+configPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err = s.Client().Do(r); err != nil || response.StatusCode != 200 {
			t.Fatalf("the next request: %v, %v", response, err)
		}
		response.Body.Close()
	}
}
