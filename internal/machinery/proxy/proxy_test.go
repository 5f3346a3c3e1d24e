package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// wait is the longest time that a test waits for something.
const wait = 20 * time.Second

// front serves a Handler made by change for each request, in front of the server at backend.
func front(t *testing.T, backend string, change func(*Handler, *http.Request)) *httptest.Server {
	t.Helper()
	transport := NewTransport(TransportOptions{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := url.Parse(backend)
		if err != nil {
			t.Error(err)
		}
		u.Path, u.RawQuery = r.URL.Path, r.URL.RawQuery
		h := &Handler{Target: Target{URL: u, Transport: transport}, Error: answerError}
		if change != nil {
			change(h, r)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { transport.CloseIdle(); s.CloseClientConnections(); s.Close() })
	return s
}

// answerError answers 500 with the text of the error.
func answerError(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func backend(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	return string(b)
}

// TestBothDirectionsStream sends one message after the other in both directions of one request.
func TestBothDirectionsStream(t *testing.T) {
	b := backend(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.Header().Set("Trailer", "X-Sum")
		lines := bufio.NewScanner(r.Body)
		n := 0
		for lines.Scan() {
			n++
			fmt.Fprintf(w, "got %s\n", lines.Text())
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("X-Sum", fmt.Sprint(n))
	})
	f := front(t, b.URL, func(_ *Handler, _ *http.Request) {})
	// The test server of the proxy needs full duplex too.
	inner := f.Config.Handler
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		inner.ServeHTTP(w, r)
	})
	in, out := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, in)
	if err != nil {
		t.Fatal(err)
	}
	go fmt.Fprintln(out, "0")
	response, err := f.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(response.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprintf("got %d", i) {
			t.Fatalf("message %d: %q, %v", i, lines.Text(), lines.Err())
		}
		if i < 2 {
			fmt.Fprintln(out, i+1)
		}
	}
	_ = out.Close()
	if lines.Scan() {
		t.Errorf("after the end: %q", lines.Text())
	}
	if got := response.Trailer.Get("X-Sum"); got != "3" {
		t.Errorf("trailer %q", got)
	}
}

func TestHeadersOfOneConnectionAndOfIdentityAreRemoved(t *testing.T) {
	for name, upgrade := range map[string]bool{"request": false, "upgrade": true} {
		t.Run(name, func(t *testing.T) {
			var got http.Header
			b := backend(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				w.Header().Set("Connection", "X-Hop")
				w.Header().Set("X-Hop", "1")
				w.Header().Set("X-End", "1")
				w.WriteHeader(http.StatusTeapot)
			})
			f := front(t, b.URL, func(h *Handler, _ *http.Request) {
				h.Target.Header = http.Header{"X-Remote-User": {"server"}, "X-Added": {"1"}}
			})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+"/a", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{
				"Connection": {"Keep-Alive, X-Mine"}, "X-Mine": {"1"}, "Keep-Alive": {"1"}, "Te": {"gzip"},
				"Proxy-Authorization": {"1"}, "Authorization": {"Bearer secret"}, "X-Remote-User": {"evil"},
				"X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Scopes": {"1"}, "X-Remote-Uid": {"1"},
				"Impersonate-User": {"evil"}, "X-Forwarded-For": {"9.9.9.9"}, "X-Kept": {"1"}, "User-Agent": {"me"},
			}
			if upgrade {
				r.Header["Connection"] = []string{"Upgrade, X-Mine"}
				r.Header["Upgrade"] = []string{"websocket"}
			}
			response, err := f.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = body(t, response)
			if response.StatusCode != http.StatusTeapot || response.Header.Get("X-End") != "1" ||
				response.Header.Get("X-Hop") != "" {
				t.Errorf("response: %d %v", response.StatusCode, response.Header)
			}
			for _, name := range []string{"X-Mine", "Keep-Alive", "Te", "Proxy-Authorization", "Authorization",
				"X-Remote-Group", "X-Remote-Extra-Scopes", "X-Remote-Uid", "Impersonate-User"} {
				if v, ok := got[name]; ok {
					t.Errorf("%s was forwarded: %q", name, v)
				}
			}
			for name, want := range map[string]string{
				"X-Kept": "1", "X-Added": "1", "X-Remote-User": "server", "X-Forwarded-For": "9.9.9.9, 127.0.0.1",
				"User-Agent": "me",
			} {
				if v := got.Get(name); v != want {
					t.Errorf("%s: %q, want %q", name, v, want)
				}
			}
		})
	}
}

// raw sends text on a new connection to a server.
func raw(t *testing.T, s *httptest.Server, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

const upgradeText = "GET /x?a=1 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"

func TestUpgradedConnectionsAreJoined(t *testing.T) {
	var got http.Request
	closed := make(chan error, 1)
	b := backend(t, func(w http.ResponseWriter, r *http.Request) {
		got = *r
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		// What follows the header is sent together with it.
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-A: b\r\n\r\nhello")
		if err := rw.Flush(); err != nil {
			t.Error(err)
		}
		line, err := rw.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(rw, "got %s", line)
		if err := rw.Flush(); err != nil {
			t.Error(err)
		}
		_, err = rw.ReadByte()
		closed <- err
	})
	f := front(t, b.URL, nil)
	conn, r := raw(t, f, upgradeText+"early\n") // the client does not wait for the answer
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "SPDY/3.1" ||
		response.Header.Get("X-A") != "b" {
		t.Errorf("response: %d %v", response.StatusCode, response.Header)
	}
	want := "hellogot early\n"
	text := make([]byte, len(want))
	if _, err := io.ReadFull(r, text); err != nil || string(text) != want {
		t.Errorf("got %q, %v", text, err)
	}
	if got.Header.Get("Upgrade") != "SPDY/3.1" || got.RequestURI != "/x?a=1" || got.Host != "h" {
		t.Errorf("the server got %s %s %v", got.Host, got.RequestURI, got.Header)
	}
	_ = conn.Close()
	select {
	case <-closed:
	case <-time.After(wait):
		t.Error("the connection to the server was not closed after the client's")
	}
}

// TestRefusedUpgradesCloseTheConnection tries the attack of CVE-2018-1002105: after a refused upgrade the client
// sends a second request on the same connection.
func TestRefusedUpgradesCloseTheConnection(t *testing.T) {
	for _, code := range []int{400, 403, 500} {
		var requests atomic.Int32
		b := backend(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("X-Why", "because")
			http.Error(w, "refused", code)
		})
		f := front(t, b.URL, nil)
		_, r := raw(t, f, upgradeText+"GET /secret HTTP/1.1\r\nHost: h\r\n\r\n")
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := body(t, response); response.StatusCode != code || text != "refused\n" ||
			response.Header.Get("X-Why") != "because" {
			t.Errorf("%d: response %d %q %v", code, response.StatusCode, text, response.Header)
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) && !isReset(err) {
			t.Errorf("%d: the connection goes on: %v", code, err)
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%d: the server got %d requests", code, n)
		}
	}
}

// isReset reports whether the other side has closed a connection on which more was sent.
func isReset(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && !e.Timeout()
}

// TestUpgradesAreNotRedirected tries the attack of CVE-2020-8559: a server redirects an upgrade.
func TestUpgradesAreNotRedirected(t *testing.T) {
	for _, code := range []int{200, 204, 302, 307} {
		b := backend(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://elsewhere/")
			w.WriteHeader(code)
		})
		_, r := raw(t, front(t, b.URL, nil), upgradeText)
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := body(t, response); response.StatusCode != 500 || response.Header.Get("Location") != "" ||
			text != fmt.Sprintf("invalid upgrade response: status code %d\n", code) {
			t.Errorf("%d: response %d %q %v", code, response.StatusCode, text, response.Header)
		}
	}
}

func TestRedirects(t *testing.T) {
	var followed atomic.Bool
	b := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/next" {
			followed.Store(true)
		}
		http.Redirect(w, r, "/next", http.StatusFound)
	})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for refuse, want := range map[bool]int{false: http.StatusFound, true: http.StatusBadGateway} {
		f := front(t, b.URL, func(h *Handler, _ *http.Request) { h.RefuseRedirects = refuse })
		response, err := client.Get(f.URL + "/a")
		if err != nil {
			t.Fatal(err)
		}
		text := body(t, response)
		if response.StatusCode != want || refuse && (text != redirectMessage || response.Header.Get("Location") != "") {
			t.Errorf("refuse %v: %d %q %v", refuse, response.StatusCode, text, response.Header)
		}
	}
	if followed.Load() {
		t.Error("the proxy has followed a redirect")
	}
}

func TestOnlyUpgrades(t *testing.T) {
	f := front(t, "http://127.0.0.1:1", func(h *Handler, _ *http.Request) { h.UpgradeOnly = true })
	response, err := f.Client().Get(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, response); text != "Upgrade request required\n" {
		t.Errorf("%q", text)
	}
}

func TestServersThatCannotBeReached(t *testing.T) {
	f := front(t, "http://127.0.0.1:1", func(h *Handler, _ *http.Request) { h.Rewrite = &Rewriter{} })
	response, err := f.Client().Get(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, response); !strings.HasPrefix(text, "error trying to reach service: dial tcp 127.0.0.1:1: ") {
		t.Errorf("request: %q", text)
	}
	_, r := raw(t, f, upgradeText)
	if response, err = http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	}
	if text := body(t, response); !strings.HasPrefix(text, "error dialing backend: dial tcp 127.0.0.1:1: ") {
		t.Errorf("upgrade: %q", text)
	}
}

// TestAddressesArePinned connects to the address in the target, and verifies the name in its URL.
func TestAddressesArePinned(t *testing.T) {
	b := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.ServerName)
	}))
	t.Cleanup(b.Close)
	pool := x509.NewCertPool()
	pool.AddCert(b.Certificate())
	var dialed []string
	transport := NewTransport(TransportOptions{
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, Pinned: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	t.Cleanup(transport.CloseIdle)
	address := b.Listener.Addr().String()
	for _, upgrade := range []bool{false, true} {
		for pinned, want := range map[string]string{
			address: "example.com", "": "the address of example.com:10250 was not checked",
		} {
			h := &Handler{
				Target: Target{
					URL: &url.URL{Scheme: "https", Host: "example.com:10250", Path: "/"}, Transport: transport,
				},
				Error: answerError,
			}
			if pinned != "" {
				h.Target.Addresses = []string{pinned}
			}
			transport.CloseIdle()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if upgrade {
				r.Header.Set("Connection", "Upgrade")
				if want == "example.com" {
					want = "invalid upgrade response: status code 200"
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if !strings.HasSuffix(strings.TrimSpace(w.Body.String()), want) {
				t.Errorf("upgrade %v, address %q: %q", upgrade, pinned, w.Body)
			}
		}
	}
	for _, d := range dialed {
		if d != address {
			t.Errorf("connected to %s", d)
		}
	}
}

func TestRewrittenResponses(t *testing.T) {
	const page = `<!DOCTYPE html><html><a href="/x/?q=1#f">x</a><a href=rel>r</a><img src="http://other/y">` +
		`<script src='/s.js'>if (a < b) "<a href='/no'>"</script><!-- <a href="/no"> --><form action="/pre/fix/f">` +
		`<a href="//h/z"></a><a href="%zz"></a><a cut`
	const want = `<!DOCTYPE html><html><a href="/pre/fix/x/?q=1#f">x</a><a href="rel">r</a><img src="http://other/y">` +
		`<script src="/pre/fix/s.js">if (a < b) "<a href='/no'>"</script><!-- <a href="/no"> -->` +
		`<form action="/pre/fix/f"><a href="//h/pre/fix/z"></a><a href="%zz"></a>`
	var uri string
	b := backend(t, func(w http.ResponseWriter, r *http.Request) {
		uri = r.Header.Get("X-Forwarded-Uri")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		out := io.Writer(w)
		switch r.URL.Path {
		case "/text":
			w.Header().Set("Content-Type", "text/plain")
		case "/location":
			w.Header().Set("Location", "http://"+r.Host+"/next/")
		case "/badlocation":
			w.Header().Set("Location", "http://[/")
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
		case "/badgzip":
			w.Header().Set("Content-Encoding", "gzip")
		case "/br":
			w.Header().Set("Content-Encoding", "br")
		}
		fmt.Fprint(out, page)
	})
	f := front(t, b.URL, func(h *Handler, r *http.Request) {
		h.Rewrite = NewRewriter("/pre/fix"+r.URL.Path, r.URL.Path)
	})
	get := func(path string) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "h"
		r.Header.Set("Accept-Encoding", "gzip") // or else the transport unpacks
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return response, body(t, response)
	}
	response, text := get("/dir/")
	if !strings.HasPrefix(text, want) || response.Header.Get("Access-Control-Allow-Origin") != "" || uri != "/pre/fix/dir/" {
		t.Errorf("%s\n%s\n%v", uri, text, response.Header)
	}
	if _, text := get("/text"); text != page {
		t.Errorf("text: %s", text)
	}
	if _, text := get("/br"); text != page {
		t.Errorf("unknown encoding: %s", text)
	}
	if response, text := get("/location"); text != page || response.Header.Get("Location") != "http://h/pre/fix/next/" {
		t.Errorf("location: %s %v", text, response.Header)
	}
	if _, text := get("/badlocation"); !strings.HasPrefix(text, "error trying to parse Location header: ") {
		t.Errorf("bad location: %s", text)
	}
	if _, text := get("/badgzip"); !strings.HasPrefix(text, "errorf making gzip reader: ") {
		t.Errorf("bad gzip: %s", text)
	}
	_, packed := get("/gzip")
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(z); err != nil || !strings.HasPrefix(string(unpacked), want) {
		t.Errorf("gzip: %s, %v", unpacked, err)
	}
}

// TestLargeTokensPass forwards a page with a text that is too large to be looked at.
func TestLargeTokensPass(t *testing.T) {
	large := strings.Repeat("x", maxToken+1)
	in := `<a href="/a">` + large + `<a href="/b">`
	var out bytes.Buffer
	rw := &Rewriter{Prefix: "/p"}
	err := rw.copyPage(&out, strings.NewReader(in), httptest.NewRequest(http.MethodGet, "/", nil))
	if want := `<a href="/p/a">` + large + `<a href="/b">`; err != nil || out.String() != want {
		t.Errorf("%d bytes, want %d, %v", out.Len(), len(want), err)
	}
}

func TestPacedReaders(t *testing.T) {
	in := strings.Repeat("x", 100)
	if r := Paced(t.Context(), strings.NewReader(in), 0); r.(*strings.Reader) == nil {
		t.Error("no limit")
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := Paced(ctx, strings.NewReader(in), 10)
	b := make([]byte, 100)
	if n, err := r.Read(b); n != 10 || err != nil {
		t.Errorf("first second: %d, %v", n, err)
	}
	cancel()
	if n, err := r.Read(b); n != 10 || !errors.Is(err, context.Canceled) {
		t.Errorf("next: %d, %v", n, err)
	}
}

func TestUpgradesHTTP(t *testing.T) {
	for protocol, want := range map[string]bool{
		"": false, "websocket": false, "SPDY/3.1": false, "h2c": true, "websocket, H2C": true, "HTTP/2.0": true, "TLS/1.2": true,
	} {
		if got := UpgradesHTTP(http.Header{"Upgrade": {protocol}}); got != want {
			t.Errorf("%q: %t", protocol, got)
		}
	}
}

func TestLeavesPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/apis/x.io/v1": false, "/apis/x.io/v1/a..b/.c/d...": false, "/apis/x.io/v1/../../api/v1/secrets": true,
		"/apis/x.io/v1/a/.": true, "/apis/./v1": true, "/..": true,
	} {
		if got := LeavesPath(path); got != want {
			t.Errorf("%q: %t", path, got)
		}
	}
}
