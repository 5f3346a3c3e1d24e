package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// wait is the longest time for which a test waits.
const wait = 20 * time.Second

// apiServer is an API server behind a proxy. It records its requests.
type apiServer struct {
	*httptest.Server
	mu       sync.Mutex // guards requests
	requests []*http.Request
	handle   http.HandlerFunc
}

func newAPIServer(t *testing.T, handle http.HandlerFunc) *apiServer {
	t.Helper()
	s := &apiServer{handle: handle}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r)
		s.mu.Unlock()
		if s.handle != nil {
			s.handle(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"path":%q}`, r.URL.EscapedPath())
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// got returns the requests since the last call.
func (s *apiServer) got() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.requests = nil }()
	return s.requests
}

// testConsole is a running proxy, with the data of a browser that has a session.
type testConsole struct {
	*Proxy
	api    *apiServer
	origin string // http://127.0.0.1:PORT
	cookie string // NAME=VALUE
	now    func(time.Duration)
	end    func() error // ends Serve
}

const secretToken = "Bearer secret-of-the-kubeconfig"

// startConsole starts a proxy for a server and starts a session. change may first alter the connection to the
// server.
func startConsole(t *testing.T, api *apiServer, change func(*Upstream)) *testConsole {
	t.Helper()
	base, err := url.Parse(api.URL + "/prefix")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(api.Certificate())
	u := &Upstream{URL: base, Header: http.Header{"Authorization": {secretToken}}, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	if change != nil {
		change(u)
	}
	return serveConsole(t, api, func(context.Context) (*Upstream, error) { return u, nil })
}

func serveConsole(t *testing.T, api *apiServer, connect func(context.Context) (*Upstream, error)) *testConsole {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &testConsole{api: api, origin: "http://" + l.Addr().String()}
	var mu sync.Mutex
	now := time.Now()
	c.now = func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	c.Proxy, err = NewProxy(t.Context(), l.Addr().(*net.TCPAddr).Port, ProxyOptions{
		Connect: connect, Version: "1.2.3", Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(ctx, l) }()
	c.end = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
	c.cookie = c.login(t, c.NewLink())
	return c
}

// client follows no redirects and has no cookies of its own.
var client = &http.Client{
	Timeout:       wait,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send sends a request as the page does. headers are names and values: "" removes a header.
func (c *testConsole) send(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	target := path
	if strings.HasPrefix(path, "/") {
		target = c.origin + path
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		t.Errorf("%s %s: the page gets a response %d %v before the last one", method, path, code, h)
		return nil
	}})
	r, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Cookie": {c.cookie}, "Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"cors"}}
	if method != http.MethodGet && method != http.MethodHead {
		r.Header.Set("Origin", c.origin)
	}
	r.Header.Set(HeaderName, c.secret(c.cookie))
	for i := 0; i < len(headers); i += 2 {
		switch name := headers[i]; {
		case name == "Host":
			r.Host = headers[i+1]
		case headers[i+1] == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, headers[i+1])
		}
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// secret returns the page's secret of the session with this cookie.
func (c *testConsole) secret(cookie string) string {
	_, value, _ := strings.Cut(cookie, "=")
	one, _ := c.sessions.find(value)
	return one.page
}

// navigation has the headers of a request for a link that was opened outside of the browser.
var navigation = []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Cookie", ""}

// login opens a link and returns the cookie, "" if the link is not valid.
func (c *testConsole) login(t *testing.T, link string) string {
	t.Helper()
	response, body := c.send(t, "GET", link, "", navigation...)
	switch cookies := response.Cookies(); {
	case response.StatusCode == http.StatusForbidden && len(cookies) == 0 && strings.Contains(body, "no longer valid"):
		return ""
	case response.StatusCode == http.StatusSeeOther && len(cookies) == 1:
		k := cookies[0]
		secret := c.secret(k.Name + "=" + k.Value)
		if response.Header.Get("Location") != "/console/#session="+secret || len(secret) != 43 || secret == k.Value || !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/" || k.Domain != "" || len(k.Value) != 43 ||
			response.Header.Get("Cache-Control") != "no-store" || response.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("the login is answered %v", response.Header)
		}
		return k.Name + "=" + k.Value
	default:
		t.Fatalf("the login is answered %d %v %s", response.StatusCode, response.Header, body)
		return ""
	}
}

const (
	podsPath = "/api/v1/namespaces/default/pods"
	noWhere  = "application/octet-stream"
)

func TestRequestsAreForwarded(t *testing.T) {
	c := startConsole(t, newAPIServer(t, nil), nil)
	for _, path := range []string{
		podsPath + "?watch=1&x=%2F", "/apis", "/openapi/v3", "/version", "/metrics", "/healthz", "/livez/ping", "/readyz",
		"/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1",
		"/api/v1/namespaces/a/services/b/proxy/x%2Fy", "/apis/a.b/v1/things/na%20me",
	} {
		response, body := c.send(t, "GET", path, "")
		want, _, _ := strings.Cut("/prefix"+path, "?")
		got := c.api.got()
		if response.StatusCode != 200 || body != `{"path":"`+want+`"}` || len(got) != 1 || got[0].Header.Get("Authorization") != secretToken {
			t.Errorf("%s: %d %s, %d requests", path, response.StatusCode, body, len(got))
			continue
		}
		if _, query, _ := strings.Cut(path, "?"); got[0].URL.RawQuery != query || got[0].ProtoMajor != 2 {
			t.Errorf("%s: query %q, %s", path, got[0].URL.RawQuery, got[0].Proto)
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		response, _ := c.send(t, method, podsPath, "{}", "Content-Type", "application/json")
		if got := c.api.got(); response.StatusCode != 200 || len(got) != 1 || got[0].Method != method || got[0].ContentLength != 2 {
			t.Errorf("%s: %d, %v", method, response.StatusCode, got)
		}
	}
	// Requests for the root path, and with a host name instead of an address.
	if response, _ := c.send(t, "GET", "/", ""); response.Header.Get("Location") != "/console/" {
		t.Errorf("/: %v", response.Header)
	}
	local := strings.Replace(c.origin, "127.0.0.1", "localhost", 1)
	if response, _ := c.send(t, "POST", podsPath, "{}", "Host", strings.TrimPrefix(local, "http://"), "Origin", local); response.StatusCode != 200 {
		t.Errorf("localhost: %d", response.StatusCode)
	}
}

// TestAttacks has requests that must not reach the server. Each differs in one point from a valid request of the
// page.
func TestAttacks(t *testing.T) {
	c := startConsole(t, newAPIServer(t, nil), nil)
	port := c.port
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13", "Sec-Websocket-Key", "x"}
	with := func(more ...string) []string { return append(slices.Clone(upgrade), more...) }
	for name, a := range map[string]struct {
		method, path string
		code         int
		headers      []string
	}{
		"DNS rebinding":                 {"GET", podsPath, 421, []string{"Host", "evil.example:" + port}},
		"rebinding with its own origin": {"POST", podsPath, 421, []string{"Host", "evil.example:" + port, "Origin", "http://evil.example:" + port}},
		"another port in Host":          {"GET", podsPath, 421, []string{"Host", "127.0.0.1:1"}},
		"no port in Host":               {"GET", podsPath, 421, []string{"Host", "127.0.0.1"}},
		"a name like ours":              {"GET", podsPath, 421, []string{"Host", "localhost.evil.example:" + port}},
		"rebinding of the page":         {"GET", "/console/", 421, []string{"Host", "evil.example:" + port}},
		"foreign origin":                {"POST", podsPath, 403, []string{"Origin", "https://evil.example"}},
		"foreign origin of a GET":       {"GET", podsPath, 403, []string{"Origin", "https://evil.example"}},
		"null origin":                   {"POST", podsPath, 403, []string{"Origin", "null"}},
		"origin with https":             {"POST", podsPath, 403, []string{"Origin", "https://127.0.0.1:" + port}},
		"origin of another port":        {"POST", podsPath, 403, []string{"Origin", "http://127.0.0.1:1"}},
		"origin of our other name":      {"POST", podsPath, 403, []string{"Origin", "http://localhost:" + port}},
		"origin of the login":           {"GET", loginPath + "?once=x", 403, []string{"Origin", "https://evil.example"}},
		"cross-site":                    {"GET", podsPath, 403, []string{"Sec-Fetch-Site", "cross-site"}},
		"cross-site navigation":         {"GET", podsPath, 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		"cross-site link to the page":   {"GET", "/console/", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		"same-site":                     {"GET", podsPath, 403, []string{"Sec-Fetch-Site", "same-site"}},
		"none without a navigation":     {"GET", podsPath, 403, []string{"Sec-Fetch-Site", "none"}},
		"none of a POST":                {"POST", podsPath, 403, []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}},
		"no cookie":                     {"GET", podsPath, 401, []string{"Cookie", ""}},
		"another cookie":                {"GET", podsPath, 401, []string{"Cookie", c.cookie + "x"}},
		"an empty cookie":               {"GET", podsPath, 401, []string{"Cookie", cookiePrefix + port + "="}},
		"a cookie of another port":      {"GET", podsPath, 401, []string{"Cookie", strings.Replace(c.cookie, port, "1", 1)}},
		"no cookie for the settings":    {"GET", "/console/config.json", 401, []string{"Cookie", ""}},
		"a token instead of a cookie":   {"GET", podsPath, 401, []string{"Cookie", "", "Authorization", secretToken}},
		"POST without our header":       {"POST", podsPath, 403, []string{HeaderName, ""}},
		"DELETE without our header":     {"DELETE", podsPath, 403, []string{HeaderName, ""}},
		"POST with another secret":      {"POST", podsPath, 401, []string{HeaderName, "1"}},
		"GET with the cookie alone":     {"GET", podsPath, 401, []string{HeaderName, ""}},
		"the settings by the cookie":    {"GET", "/console/config.json", 401, []string{HeaderName, ""}},
		"the cookie as the secret":      {"GET", podsPath, 401, []string{HeaderName, strings.SplitN(c.cookie, "=", 2)[1]}},
		"the secret of another session": {"GET", podsPath, 401, []string{HeaderName, c.secret(c.login(t, c.NewLink()))}},
		"WebSocket by the cookie alone": {"GET", podsPath + "/p/exec", 401, with("Origin", c.origin, HeaderName, "")},
		"WebSocket with another secret": {"GET", podsPath + "/p/exec", 401, with("Origin", c.origin, HeaderName, "", "Sec-Websocket-Protocol", "v5.channel.k8s.io, "+sessionProtocol+"x")},
		"POST without an origin":        {"POST", podsPath, 403, []string{"Origin", ""}},
		"CORS preflight":                {"OPTIONS", podsPath, 405, []string{"Access-Control-Request-Method", "POST"}},
		"TRACE":                         {"TRACE", podsPath, 405, nil},
		"WebSocket of a foreign origin": {"GET", podsPath + "/p/exec", 403, with("Origin", "https://evil.example")},
		"WebSocket without an origin":   {"GET", podsPath + "/p/exec", 403, with()},
		"WebSocket without a cookie":    {"GET", podsPath + "/p/exec", 401, with("Origin", c.origin, "Cookie", "")},
		"WebSocket from another site":   {"GET", podsPath + "/p/exec", 403, with("Origin", c.origin, "Sec-Fetch-Site", "cross-site")},
		"upgrade of a POST":             {"POST", podsPath + "/p/exec", 403, with()},
		"SPDY":                          {"GET", podsPath + "/p/exec", 403, with("Origin", c.origin, "Upgrade", "SPDY/3.1")},
		"HTTP/2 without TLS":            {"GET", podsPath, 403, with("Origin", c.origin, "Upgrade", "h2c")},
		"a path that is not forwarded":  {"GET", "/keelson/snapshot", 404, nil},
		"debugging":                     {"GET", "/debug/pprof/", 404, nil},
		"other debugging":               {"GET", "/debug/api_priority_and_fairness/dump_queues", 404, nil},
		"a path that begins like ours":  {"GET", "/apiserver", 404, nil},
		"a path that leaves its prefix": {"GET", "/api/../debug/pprof", 400, nil},
		"an encoded one":                {"GET", "/api/%2e%2e/debug/pprof", 400, nil},
		"exchange of a code":            {"POST", "/console/oidc/token", 404, nil},
		"HEAD of the login":             {"HEAD", loginPath + "?once=x", 405, nil},
	} {
		response, body := c.send(t, a.method, a.path, "", a.headers...)
		if got := c.api.got(); response.StatusCode != a.code || len(got) > 0 {
			t.Errorf("%s: %d %s, the server got %d requests", name, response.StatusCode, body, len(got))
		}
		if response.Header.Get("Access-Control-Allow-Origin") != "" || response.Header.Get("Content-Security-Policy") == "" ||
			response.Header.Get("X-Content-Type-Options") != "nosniff" || len(response.Cookies()) > 0 {
			t.Errorf("%s: %v", name, response.Header)
		}
	}
	if response, _ := c.send(t, "GET", podsPath, "", "Cookie", ""); response.Header.Get(HeaderName) != "no-session" {
		t.Errorf("a request without a session is answered %v", response.Header)
	}
	// The host in the request line differs from the header Host.
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", c.guard.hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET http://evil.example%s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n\r\n", podsPath, c.guard.hosts[0], c.cookie)
	if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || response.StatusCode != 421 || len(c.api.got()) > 0 {
		t.Errorf("another host in the request line: %v, %v", response, err)
	}
}

func TestLinks(t *testing.T) {
	c := startConsole(t, newAPIServer(t, nil), nil)
	usable := func(cookie string) bool {
		t.Helper()
		response, _ := c.send(t, "GET", "/version", "", "Cookie", cookie, HeaderName, c.secret(cookie))
		return response.StatusCode == 200
	}
	link := c.NewLink()
	if response, _ := c.send(t, "GET", link, "", append(slices.Clone(navigation), "Sec-Fetch-Site", "cross-site")...); response.StatusCode != 403 {
		t.Errorf("a link of another page is answered %d", response.StatusCode)
	}
	second := c.login(t, link) // the refused one has not used it up
	if second == "" || second == c.cookie || !usable(second) || !usable(c.cookie) {
		t.Errorf("the second session: %q", second)
	}
	if c.login(t, link) != "" {
		t.Error("a link is valid twice")
	}
	for _, used := range []string{link, c.origin + loginPath} {
		response, _ := c.send(t, "GET", used, "")
		if response.StatusCode != http.StatusSeeOther || len(response.Cookies()) > 0 || response.Header.Get("Location") != "/console/" {
			t.Errorf("a browser with the cookie of a session opens a used link: %d %v", response.StatusCode, response.Header)
		}
	}
	old := c.NewLink()
	link = c.NewLink()
	if c.login(t, old) != "" {
		t.Error("a link is valid after the next one was printed")
	}
	c.now(linkTTL)
	if c.login(t, link) != "" {
		t.Error("a link is valid after its end")
	}
	link = c.NewLink()
	c.now(linkTTL - 1)
	if c.login(t, link) == "" {
		t.Error("a link is not valid before its end")
	}
	for _, bad := range []string{"", "?once=", "?once=x", "?once=" + strings.Repeat("A", 43)} {
		if c.login(t, c.origin+loginPath+bad) != "" {
			t.Errorf("%q is valid", bad)
		}
	}
	for range maxSessions {
		c.login(t, c.NewLink())
	}
	if usable(second) || usable(c.cookie) {
		t.Errorf("more than %d sessions are valid", maxSessions)
	}
}

// TestCredentialsStayHere has a server that repeats its request, and a page that sends headers which must not be
// forwarded.
func TestCredentialsStayHere(t *testing.T) {
	c := startConsole(t, newAPIServer(t, nil), nil)
	response, body := c.send(t, "POST", podsPath, "{}",
		"Authorization", "Bearer of-the-page", "Referer", c.origin+"/console/", "X-Forwarded-For", "1.2.3.4", "Forwarded", "for=1.2.3.4",
		"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "Impersonate_User", "x", "Proxy-Authorization", "x", "X-Other", "x",
		"Accept", "application/json", "Content-Type", "application/yaml", "Impersonate-User", "jane", "Impersonate-Group", "dev",
		"Impersonate-Extra-Scopes", "a", "User-Agent", "Mozilla")
	got := c.api.got()[0].Header
	want := http.Header{
		"Authorization": {secretToken}, "Accept": {"application/json"}, "Content-Type": {"application/yaml"}, "Impersonate-User": {"jane"},
		"Impersonate-Group": {"dev"}, "Impersonate-Extra-Scopes": {"a"}, "User-Agent": {"keelson-console/1.2.3"}, "Content-Length": {"2"},
		"Accept-Encoding": {"gzip"}, // of the test's client
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the server gets %v, want %v", got, want)
	}
	if text := fmt.Sprint(response.Header, body); strings.Contains(text, "secret") {
		t.Errorf("the page gets %s", text)
	}
	config, body := c.send(t, "GET", "/console/config.json", "")
	if want := `{"product":"keelson","version":"1.2.3","kubernetes":"","proxied":true,"server":"` + c.api.URL + `/prefix","oidc":null}`; body != want {
		t.Errorf("%v %s", config.Header, body)
	}
}

// TestImpersonation has a kubeconfig that impersonates a user. The page must not be able to impersonate another
// one.
func TestImpersonation(t *testing.T) {
	c := startConsole(t, newAPIServer(t, nil), func(u *Upstream) { u.Header.Set("Impersonate-User", "viewer") })
	if response, _ := c.send(t, "GET", podsPath, "", "Impersonate-User", "admin"); response.StatusCode != 403 || len(c.api.got()) > 0 {
		t.Errorf("%d", response.StatusCode)
	}
	if response, _ := c.send(t, "GET", podsPath, "", "Impersonate-Group", "system:masters"); response.StatusCode != 403 || len(c.api.got()) > 0 {
		t.Errorf("%d", response.StatusCode)
	}
	if response, _ := c.send(t, "GET", podsPath, ""); response.StatusCode != 200 || c.api.got()[0].Header.Get("Impersonate-User") != "viewer" {
		t.Errorf("%d", response.StatusCode)
	}
}

// TestHostileServers has answers that must not become pages, scripts or cookies of the console's origin.
func TestHostileServers(t *testing.T) {
	c := startConsole(t, newAPIServer(t, nil), nil)
	for sent, want := range map[string]string{
		"text/html": noWhere, "text/html; charset=utf-8": noWhere, "application/xhtml+xml": noWhere, "image/svg+xml": noWhere,
		"text/javascript": noWhere, "application/javascript": noWhere, "text/css": noWhere, "application/wasm": noWhere, "": noWhere,
		"application/pdf": noWhere, "text/html, application/json": noWhere, "x": noWhere, "application/json": "application/json",
		"application/json;stream=watch": "application/json;stream=watch", "application/yaml": "application/yaml",
		"application/vnd.kubernetes.protobuf": "application/vnd.kubernetes.protobuf", "text/plain; version=0.0.4": "text/plain; version=0.0.4",
		"application/com.github.proto-openapi.spec.v2.v1.0+protobuf": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
	} {
		c.api.handle = func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Link", "</evil.js>; rel=preload")
			h.Set("Set-Cookie", "early=1")
			w.WriteHeader(http.StatusEarlyHints)
			h["Content-Type"] = []string{sent}
			if sent == "" {
				h["Content-Type"] = nil
			}
			for name, value := range map[string]string{
				"Set-Cookie": c.cookie, "Www-Authenticate": "Basic realm=x", "Access-Control-Allow-Origin": "*", "Authorization": "x",
				"Access-Control-Allow-Credentials": "true", "Location": "https://evil.example", "Refresh": "0; url=https://evil.example",
				"Content-Security-Policy": "default-src *", "Service-Worker-Allowed": "/", "Clear-Site-Data": `"*"`, "Trailer": "X-End",
				"X-Frame-Options": "ALLOWALL", "Strict-Transport-Security": "max-age=1", "Sourcemap": "/x", "Alt-Svc": "h3", "X-Any": "1",
				HeaderName: "no-session", "Warning": `299 - "kept"`, "Audit-Id": "kept",
			} {
				h.Set(name, value)
			}
			fmt.Fprint(w, "<script>alert(1)</script>")
			h.Set("X-End", "1")
		}
		response, _ := c.send(t, "GET", podsPath, "", "Accept-Encoding", "identity")
		h := response.Header
		if h.Get("Content-Type") != want || (h.Get("Content-Disposition") == "attachment") != (want == noWhere) {
			t.Errorf("%q: %v", sent, h)
		}
		for name := range h {
			if !slices.Contains([]string{
				"Content-Type", "Content-Disposition", "Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "X-Frame-Options",
				"Cross-Origin-Resource-Policy", "Cache-Control", "Date", "Warning", "Audit-Id", "Content-Length",
			}, name) {
				t.Errorf("%q: the page gets %s: %q", sent, name, h[name])
			}
		}
		if h.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'" || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("X-Frame-Options") != "DENY" || h.Get("Cache-Control") != "no-store" || h.Get("Warning") != `299 - "kept"` ||
			len(response.Trailer) > 0 {
			t.Errorf("%q: %v %v", sent, h, response.Trailer)
		}
	}
	c.api.handle = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.example/", http.StatusFound)
	}
	if response, _ := c.send(t, "GET", podsPath, ""); response.Header.Get("Location") != "" {
		t.Errorf("a redirect is forwarded: %v", response.Header)
	}
}

func TestWatchesStream(t *testing.T) {
	next := make(chan string)
	gone := make(chan struct{})
	c := startConsole(t, newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		for {
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			select {
			case event := <-next:
				fmt.Fprintln(w, event)
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	}), nil)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.origin+podsPath+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", c.cookie)
	r.Header.Set(HeaderName, c.secret(c.cookie))
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for _, event := range []string{`{"type":"ADDED"}`, `{"type":"DELETED"}`} {
		next <- event
		if !lines.Scan() || lines.Text() != event {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	select {
	case <-gone:
	case <-ctx.Done():
		t.Error("the watch goes on after the end of the console")
	}
}

// TestWebSockets has a server that returns the messages of a WebSocket, and reports the protocols in the request.
func TestWebSockets(t *testing.T) {
	c := startConsole(t, newAPIServer(t, nil), nil)
	offered, gone := make(chan []string, 1), make(chan struct{})
	echo := websocket.Server{
		Handshake: func(config *websocket.Config, r *http.Request) error {
			offered <- slices.Concat(config.Protocol, r.Header["Origin"], r.Header["Cookie"], r.Header["Authorization"])
			config.Protocol = config.Protocol[:1]
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			for text := ""; websocket.Message.Receive(ws, &text) == nil; {
				_ = websocket.Message.Send(ws, text)
			}
			close(gone)
		},
	}
	c.api.handle = echo.ServeHTTP
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(c.origin, "http")+podsPath+"/p/exec?command=sh", c.origin)
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = []string{"v5.channel.k8s.io", bearerProtocol + "c2VjcmV0", sessionProtocol + c.secret(c.cookie)}
	config.Header = http.Header{"Cookie": {c.cookie}, "Sec-Fetch-Site": {"same-origin"}}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	ws, err := config.DialContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if got, want := <-offered, []string{"v5.channel.k8s.io", secretToken}; !slices.Equal(got, want) {
		t.Errorf("the server is offered %q, want %q", got, want)
	}
	for _, text := range []string{"hello", strings.Repeat("x", 100<<10)} {
		if err := websocket.Message.Send(ws, text); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := websocket.Message.Receive(ws, &got); err != nil || got != text {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	r := c.api.got()[0]
	if r.URL.Path != "/prefix"+podsPath+"/p/exec" || r.URL.RawQuery != "command=sh" || r.ProtoMajor != 1 {
		t.Errorf("the server gets %s %s", r.Proto, r.URL)
	}
	c.api.handle = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "x=1")
		w.WriteHeader(http.StatusForbidden)
	}
	if _, err := config.DialContext(ctx); err == nil {
		t.Error("a refused WebSocket is open")
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	select {
	case <-gone:
	case <-ctx.Done():
		t.Error("the WebSocket goes on after the end of the console")
	}
}

// TestRenewedCredentials has a server that at some time accepts only another token.
func TestRenewedCredentials(t *testing.T) {
	valid := "one"
	api := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(api.Certificate())
	token, failure, looked := "one", error(nil), 0
	c := serveConsole(t, api, func(context.Context) (*Upstream, error) {
		looked++
		return &Upstream{URL: base, Header: http.Header{"Authorization": {token}}, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}, failure
	})
	ask := func(want, looks int) {
		t.Helper()
		if response, _ := c.send(t, "GET", podsPath, ""); response.StatusCode != want || looked != looks {
			t.Errorf("%d, %d looks at the kubeconfig", response.StatusCode, looked)
		}
	}
	ask(200, 1)
	c.now(reconnectPause)
	valid, token = "two", "two"
	ask(200, 2)
	valid = "three"
	ask(401, 2) // too soon for another call of Connect
	c.now(reconnectPause)
	ask(401, 3)
	c.now(reconnectPause)
	failure = errors.New("no program")
	ask(401, 4)
	c.now(reconnectPause)
	token, failure = "three", nil
	ask(200, 5)
}

func TestServersThatCannotBeReached(t *testing.T) {
	api := newAPIServer(t, nil)
	c := startConsole(t, api, nil)
	api.Close()
	response, body := c.send(t, "GET", podsPath, "")
	if response.StatusCode != 502 || !strings.Contains(body, "the server cannot be reached") ||
		response.Header.Get("Content-Security-Policy") == "" || strings.Contains(body, "secret") {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	if _, err := NewProxy(t.Context(), 1, ProxyOptions{
		Connect: func(context.Context) (*Upstream, error) { return nil, errors.New("no kubeconfig") }, Now: time.Now,
	}); err == nil || err.Error() != "no kubeconfig" {
		t.Errorf("%v", err)
	}
}
