package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// quoted returns a text as a literal of JavaScript.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string is always encoded
	}
	return string(b)
}

// recorder is an API server in front of another one. It knows which requests arrived.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
	// override answers a request instead of the server behind if it returns true.
	override func(http.ResponseWriter, *http.Request) bool
}

// record starts a recorder in front of a server.
func record(t testing.TB, s *server) *recorder {
	t.Helper()
	behind, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(behind) }, Transport: s.client.Transport, FlushInterval: -1,
	}
	r := &recorder{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, q.Method+" "+q.URL.RequestURI())
		r.mu.Unlock()
		if r.override == nil || !r.override(w, q) {
			forward.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// take returns the requests since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

// settle waits until nothing has come for a moment, and forgets what has: the last requests of a page that was left may still be on
// their way.
func (r *recorder) settle(t testing.TB) {
	t.Helper()
	const moment = 300 * time.Millisecond
	for end, quiet := time.Now().Add(patience), time.Now(); time.Since(quiet) < moment; time.Sleep(20 * time.Millisecond) {
		if len(r.take()) > 0 {
			quiet = time.Now()
		}
		if time.Now().After(end) {
			t.Fatalf("requests come for %v after the page was left", patience)
		}
	}
}

// blank is an origin of its own with an empty page.
func blank(t testing.TB) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!DOCTYPE html><title>other</title><body>other origin</body>"))
	}))
	t.Cleanup(s.Close)
	return s
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// TestAttackOtherOrigin: a page of another origin in the browser of a person who uses `keelson console` sends all kinds of
// requests to it. None gets to the server, although the browser has the cookie, and sends it to other ports of 127.0.0.1.
func TestAttackOtherOrigin(t *testing.T) {
	s := start(t)
	upstream := record(t, s)
	c := startProxy(t, kubeconfig(t, upstream.URL, token))
	p := browse(t, 1000, 700)
	p.enter(c.link)
	if text := p.says(`fetch('` + configMaps + `', { headers: { 'X-Keelson-Console': localStorage.getItem('keelson-session') } }).then((r) => String(r.status))`); text != "200" { // the session is valid
		t.Fatalf("the page itself gets %s", text)
	}
	p.do("leave the page", chromedp.Navigate("about:blank"))
	other := blank(t)
	upstream.settle(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	for _, origin := range []string{"http://127.0.0.1:" + port, "http://localhost:" + port} {
		evil := p.tab(t)
		evil.do("open the other page", chromedp.Navigate(origin))
		var results []string
		evil.evaluate(fmt.Sprintf(`(async (console_, path) => {
			const body = JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'forged' } });
			const results = [];
			const attempt = async (what, run) => {
				const late = new Promise((resolve) => setTimeout(() => resolve('nothing'), 2000));
				results.push(what + ': ' + (await Promise.race([late, Promise.resolve().then(run).catch((e) => 'refused ' + e.name)])));
			};
			for (const mode of ['cors', 'no-cors', 'same-origin']) {
				for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
					for (const headers of [{}, { 'Content-Type': 'text/plain' }, { 'X-Keelson-Console': '1', 'Content-Type': 'application/json' }]) {
						await attempt([mode, method, Object.keys(headers)].join(' '), async () => {
							const r = await fetch(console_ + path, { method, mode, headers, credentials: 'include', body: method === 'GET' ? undefined : body });
							return r.type === 'opaque' ? 'opaque' : 'READ ' + r.status;
						});
					}
				}
			}
			await attempt('beacon', () => (navigator.sendBeacon(console_ + path, body), 'sent'));
			for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
				const frame = document.body.appendChild(document.createElement('iframe'));
				frame.name = 'target-' + enctype;
				const form = document.body.appendChild(document.createElement('form'));
				Object.assign(form, { method: 'POST', action: console_ + path, enctype, target: frame.name });
				const field = form.appendChild(document.createElement('input'));
				field.name = body.slice(0, -1) + ',"data":{"a":"';
				field.value = '"}}';
				form.submit();
			}
			for (const protocols of [[], ['v5.channel.k8s.io'], ['base64url.bearer.authorization.k8s.io.YQ', 'v5.channel.k8s.io']]) {
				await attempt('WebSocket', () => new Promise((resolve) => {
					const ws = new WebSocket(console_.replace('http', 'ws') + '/api/v1/namespaces/default/pods/a/exec?command=id&stdout=1', protocols);
					ws.onopen = () => resolve('OPEN');
					ws.onerror = () => resolve('refused');
				}));
			}
			for (const [tag, member] of [['img', 'src'], ['script', 'src'], ['iframe', 'src'], ['link', 'href'], ['video', 'src']]) {
				await attempt(tag, () => new Promise((resolve) => {
					const e = document.createElement(tag);
					if (tag === 'link') e.rel = 'stylesheet';
					e.onload = () => resolve('loaded');
					e.onerror = () => resolve('refused');
					e[member] = console_ + path;
					document.body.append(e);
				}));
			}
			await attempt('EventSource', () => new Promise((resolve) => {
				const source = new EventSource(console_ + path + '?watch=1', { withCredentials: true });
				source.onopen = () => resolve('OPEN');
				source.onerror = () => resolve('refused');
			}));
			for (const path of ['/console/config.json', '/console/', '/console/login?once=x']) {
				await attempt(path, async () => 'READ ' + (await fetch(console_ + path, { credentials: 'include' })).status);
			}
			await new Promise((resolve) => setTimeout(resolve, 500));
			return results;
		})(%q, %q)`, c.url, configMaps), &results)
		for _, result := range results {
			if strings.Contains(result, "READ") || strings.Contains(result, "OPEN") ||
				strings.Contains(result, "loaded") && !strings.HasPrefix(result, "iframe") {
				t.Errorf("from %s: %s", origin, result)
			}
		}
		// A window that the page opens, and a link that the person follows.
		evil.do("follow a link", chromedp.Navigate(origin), chromedp.Evaluate(fmt.Sprintf("location.href = %q", c.url+configMaps), nil))
		evil.lands("no requests of other sites")
	}
	if seen := upstream.take(); len(seen) > 0 {
		t.Errorf("the server got %q", seen)
	}
	if list := s.call(t, http.MethodGet, configMaps, "", ""); strings.Contains(list, "forged") {
		t.Error("an object was made")
	}

	// The same requests without a browser, with all that a page cannot forge but a program can, except a session.
	for _, header := range [][]string{
		{},
		{"Origin", c.url},
		{"Origin", c.url, "X-Keelson-Console", "1"},
		{"Origin", c.url, "X-Keelson-Console", "1", "Sec-Fetch-Site", "same-origin"},
		{"Origin", c.url, "X-Keelson-Console", "1", "Authorization", "Bearer " + token},
		{"Cookie", "keelson-console-" + c.url[strings.LastIndex(c.url, ":")+1:] + "=", "Origin", c.url, "X-Keelson-Console", "1"},
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if code, _ := status(t, method, c.url+configMaps, "{}", header...); code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("%s with %q: %d", method, header, code)
			}
		}
	}
	if seen := upstream.take(); len(seen) > 0 {
		t.Errorf("the server got %q", seen)
	}
}

// TestAttackFrame: neither console is shown in a frame of another page.
func TestAttackFrame(t *testing.T) {
	s := start(t)
	c := startProxy(t, kubeconfig(t, s.url, token))
	p := browse(t, 1000, 700)
	p.enter(c.link)
	other := blank(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	for _, target := range []string{c.url + "/console/", c.url + "/api/v1/namespaces", s.url + "/console/"} {
		for _, origin := range []string{"http://127.0.0.1:" + port, "http://localhost:" + port} {
			evil := p.tab(t)
			evil.do("open the other page", chromedp.Navigate(origin))
			evil.evaluate(fmt.Sprintf(`new Promise((resolve) => {
				const frame = document.createElement('iframe');
				frame.onload = frame.onerror = () => setTimeout(() => resolve(true), 300);
				frame.src = %q;
				document.body.append(frame);
			})`, target), nil)
			var tree *cdppage.FrameTree
			evil.do("look at the frames", chromedp.ActionFunc(func(ctx context.Context) (err error) {
				tree, err = cdppage.GetFrameTree().Do(ctx)
				return err
			}))
			for _, child := range tree.ChildFrames {
				if child.Frame.UnreachableURL == "" {
					t.Errorf("%s is shown in a frame of %s: %s", target, origin, child.Frame.URL)
				}
			}
		}
	}
}

// TestAttackRebinding: a name of an attacker that resolves to 127.0.0.1 is of the same origin as the attacker's page, but the
// proxy does not answer to it.
func TestAttackRebinding(t *testing.T) {
	s := start(t)
	upstream := record(t, s)
	c := startProxy(t, kubeconfig(t, upstream.URL, token))
	p := browseWith(t, chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"))
	p.enter(c.link)
	link := c.another()
	p.do("leave the page", chromedp.Navigate("about:blank"))
	upstream.settle(t)
	evil := p.tab(t)
	name := strings.Replace(c.url, "127.0.0.1", "evil.example", 1)
	for _, path := range []string{"/console/", "/console/config.json", configMaps, strings.TrimPrefix(link, c.url)} {
		evil.goes(name + path)
		evil.lands("the console is served at")
	}
	var answers []string
	evil.evaluate(fmt.Sprintf(`(async () => {
		const out = [];
		for (const path of ['/console/', '/console/config.json', %q, %q]) {
			for (const method of ['GET', 'POST']) {
				try {
					const r = await fetch(path, { method, headers: { 'X-Keelson-Console': '1' }, credentials: 'include' });
					out.push(String(r.status));
				} catch (e) {
					out.push(e.name); // the policy of the answer before
				}
			}
		}
		return out;
	})()`, configMaps, strings.TrimPrefix(link, c.url)), &answers)
	for _, answer := range answers {
		if answer != "421" && answer != "TypeError" {
			t.Errorf("a request to evil.example is answered with %s", answer)
		}
	}
	if cookies := evil.says("document.cookie"); cookies != "" {
		t.Errorf("evil.example has the cookies %s", cookies)
	}
	if seen := upstream.take(); len(seen) > 0 {
		t.Errorf("the server got %q", seen)
	}
	p.enter(link) // it was not used up

	_, port, _ := strings.Cut(strings.TrimPrefix(c.url, "http://"), ":")
	for _, host := range []string{"evil.example:" + port, "127.0.0.1", "localhost", "0.0.0.0:" + port, "127.1:" + port, "LOCALHOST.:" + port, "[::1]:" + port, ""} {
		if host == "" {
			continue // net/http fills it in
		}
		if code, _ := status(t, "GET", c.url+"/console/", "", "Host", host); code != http.StatusMisdirectedRequest {
			t.Errorf("with the host %s: %d", host, code)
		}
	}
}

// TestAttackLink: a link works once, for one browser, until there is a newer one. The cookie cannot be read by scripts.
func TestAttackLink(t *testing.T) {
	s := start(t)
	c := startProxy(t, kubeconfig(t, s.url, token))
	code, _ := status(t, http.MethodHead, c.link, "")
	if code != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %d", code)
	}
	if code, _ = status(t, http.MethodGet, c.link+"x", ""); code != http.StatusForbidden {
		t.Errorf("a wrong secret: %d", code)
	}
	first := browse(t, 1000, 700)
	first.enter(c.link)
	if cookies := first.says("document.cookie"); cookies != "" {
		t.Errorf("scripts see the cookie %s", cookies)
	}
	if address := first.says("location.href"); strings.Contains(address, "once") {
		t.Errorf("the secret stays in the address: %s", address)
	}
	second := browse(t, 1000, 700)
	second.goes(c.link)
	second.lands("This link is no longer valid")
	second.goes(c.url + "/console/")
	second.lands("open the link that keelson console has printed")
	first.goes(c.link) // the browser that has a session is sent to the page
	first.sees("Overview")

	older := c.another()
	newer := c.another()
	second.goes(older)
	second.lands("This link is no longer valid")
	second.enter(newer)
	first.open("#/r/configmaps?ns=default") // both sessions work
	first.sees("live")
}

// TestAttackCredentials: no response to the page has the credentials of the kubeconfig, and the server gets nothing of the
// browser's own.
func TestAttackCredentials(t *testing.T) {
	s := start(t)
	upstream := record(t, s)
	var mu sync.Mutex
	var problems []string
	upstream.override = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		for name := range r.Header {
			if name == "Cookie" || name == "Origin" || name == "Referer" || strings.HasPrefix(name, "Sec-Fetch") ||
				name == "X-Keelson-Console" || strings.HasPrefix(name, "X-Forwarded") {
				problems = append(problems, "the server gets the header "+name)
			}
		}
		if got := r.Header["Authorization"]; !slices.Equal(got, []string{"Bearer " + token}) {
			problems = append(problems, fmt.Sprintf("the server gets the credentials %q", got))
		}
		w.Header().Set("Set-Cookie", "hostile=1; Path=/")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Refresh", "0; url=https://example.org")
		return false
	}
	c := startProxy(t, kubeconfig(t, upstream.URL, token))
	p := browse(t, 1000, 700)
	bodies := p.bodies()
	p.enter(c.link)
	for _, view := range []string{"#/", "#/r/configmaps", "#/o/configmaps/default/kube-root-ca.crt/yaml", "#/access", "#/extensions", "#/server", "#/definitions"} {
		p.open(view)
		p.do("wait", chromedp.Poll(`!document.querySelector('.busy')`, nil))
	}
	var answer string
	p.evaluate(`fetch('/version', { headers: { Authorization: 'Bearer forged', 'X-Forwarded-For': '1.2.3.4' } }).then((r) => r.text())`, &answer)
	for where, text := range bodies() {
		if strings.Contains(text, token) {
			t.Errorf("the credentials are in the answer to %s", where)
		}
		if strings.Contains(strings.ToLower(text), "set-cookie: hostile") || strings.Contains(text, "Refresh: ") {
			t.Errorf("a header of the server passes: %s", where)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(problems)
	for _, problem := range slices.Compact(problems) {
		t.Error(problem)
	}
}
