package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, []byte) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func client(t *testing.T, target Target, o Options) *Client {
	t.Helper()
	c, err := New(target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

func TestPost(t *testing.T) {
	var got *http.Request
	var body []byte
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, `{"ok":true}`)
	})
	c := client(t, Target{URL: s.URL + "/hook/?dropped=1", CABundle: append([]byte("\n\n"), ca...)}, Options{})
	answer, err := c.Post(t.Context(), Call{Body: []byte(`{"a":1}`), Timeout: 7 * time.Second})
	if err != nil || string(answer) != `{"ok":true}` {
		t.Fatalf("%q %v", answer, err)
	}
	if got.Method != "POST" || got.URL.String() != "/hook?timeout=7s" || string(body) != `{"a":1}` || got.ProtoMajor != 1 {
		t.Errorf("%s %s %s %q", got.Method, got.URL, got.Proto, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, */*", "User-Agent": "kube-apiserver-admission",
		"Authorization": "",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q", name, got.Header.Get(name))
		}
	}
	if _, err := c.Post(t.Context(), Call{}); err != nil || got.URL.RawQuery != "timeout=30s" {
		t.Errorf("%v %s", err, got.URL)
	}
}

func TestServiceIsResolvedAndMustProveItsName(t *testing.T) {
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })
	var asked string
	o := Options{Resolve: func(_ context.Context, namespace, name string, port int32) (string, error) {
		asked = fmt.Sprint(namespace, "/", name, ":", port)
		if name == "none" {
			return "", errors.New(`service "none" not found`)
		}
		return s.Listener.Addr().String(), nil
	}}
	target := Target{Service: &Service{Namespace: "ns", Name: "hook", Path: "convert"}, CABundle: ca}
	c := client(t, target, o)
	// The certificate of the test server is for example.com and loopback addresses.
	_, err := c.Post(t.Context(), Call{})
	want := `Post "https://hook.ns.svc:443/convert?timeout=30s": tls: failed to verify certificate: x509: certificate ` +
		`is valid for example.com, *.example.com, not hook.ns.svc`
	if err == nil || err.Error() != want || asked != "ns/hook:443" {
		t.Errorf("%v, asked for %s", err, asked)
	}
	target.Service = &Service{Namespace: "ns", Name: "none", Port: 8443}
	_, err = client(t, target, o).Post(t.Context(), Call{})
	if want := `Post "https://none.ns.svc:8443/?timeout=30s": service "none" not found`; err == nil ||
		err.Error() != want {
		t.Errorf("%v", err)
	}

	o = Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		asked = address
		return nil, errors.New("no route")
	}}
	if _, err := client(t, target, o).Post(t.Context(), Call{}); err == nil || asked != "none.ns.svc:8443" {
		t.Errorf("%v, dialed %s", err, asked)
	}
}

func TestAnswersThatAreErrors(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"text": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "it broke", 500) },
			`an error on the server ("it broke") has prevented the request from succeeding`},
		"status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(409)
			fmt.Fprint(
				w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"mine","reason":"Conflict","code":409}`,
			)
		}, "mine"},
		"not found": {
			func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) },
			"the server could not find the requested resource",
		},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/", http.StatusTemporaryRedirect)
		},
			`the server responded with the status code 307 but did not return more information`},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "short")
		}, "URL: unexpected EOF"},
		"huge": {func(w http.ResponseWriter, _ *http.Request) {
			w.Write(make([]byte, 100<<10))
		}, "URL: the answer has more than 65536 bytes"},
		"closed": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "URL: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s, ca := serve(t, test.answer)
			_, err := client(t, Target{URL: s.URL, CABundle: ca}, Options{}).Post(t.Context(), Call{MaxResponse: 64 << 10})
			want := strings.Replace(test.want, "URL", fmt.Sprintf("Post %q", s.URL+"/?timeout=30s"), 1)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `7`: 0, `"[,{"`: 0, `[]`: 1, `[1,2,3]`: 3, `{"a":[{},{}],"b":"x\\","c":"\","}`: 7, `"unfinished \`: 0,
	} {
		if n := Values([]byte(text)); n != want {
			t.Errorf("%s has %d values, want %d", text, n, want)
		}
	}
}

// TestAnswersOfManyValues checks the limit of values in a response: decoding 16 MiB of short values would take
// more than 600 MiB.
func TestAnswersOfManyValues(t *testing.T) {
	answer := "[" + strings.Repeat("0,", 99) + "0]"
	s, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	for most, want := range map[int]string{100: "", 99: "the answer has more than 99 values", 0: ""} {
		_, err := client(t, Target{URL: s.URL, CABundle: ca}, Options{}).Post(t.Context(), Call{MaxValues: most})
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("at most %d: %v, want %s", most, err, want)
		}
	}
}

// TestUnfinishedAnswersAreBounded checks the limit of the bytes in all incomplete responses of one webhook
// together.
func TestUnfinishedAnswersAreBounded(t *testing.T) {
	var a pendingBodies
	a.bytes.Store(maxPending - 10)
	if text, err := a.read(strings.NewReader("0123456789"), 100); err != nil || len(text) != 10 {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := a.read(strings.NewReader("0123456789a"), 100); err == nil || !strings.Contains(err.Error(), "are being read") {
		t.Errorf("an answer beyond the limit: %v", err)
	}
	if n := a.bytes.Load(); n != maxPending-10 {
		t.Errorf("%d bytes are held, want %d", n, maxPending-10)
	}
}

// TestSwitchedProtocols checks that the body of a 101 is not read: it is the connection, and reading it would go
// on after the time-out of the call.
func TestSwitchedProtocols(t *testing.T) {
	s, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	})
	c, result := client(t, Target{URL: s.URL, CABundle: ca}, Options{}), make(chan error, 1)
	go func() {
		_, err := c.Post(t.Context(), Call{Timeout: time.Second})
		result <- err
	}()
	select {
	case err := <-result:
		if err == nil {
			t.Error("a 101 is an answer")
		}
	case <-time.After(20 * time.Second):
		t.Error("the call has not ended")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Bool
	elsewhere, _ := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusPermanentRedirect)
	})
	if _, err := client(t, Target{URL: s.URL, CABundle: ca}, Options{}).Post(t.Context(), Call{}); err == nil ||
		reached.Load() {
		t.Errorf("%v", err)
	}
}

func TestTimeOutAndCancel(t *testing.T) {
	release := make(chan struct{})
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-release
	})
	defer close(release)
	c := client(t, Target{URL: s.URL, CABundle: ca}, Options{})
	_, err := c.Post(t.Context(), Call{Timeout: 50 * time.Millisecond})
	if want := fmt.Sprintf(`Post "%s/?timeout=50ms": context deadline exceeded`, s.URL); err == nil ||
		err.Error() != want {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := c.Post(ctx, Call{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestTrust(t *testing.T) {
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) {})
	if _, err := client(t, Target{URL: s.URL}, Options{}).Post(t.Context(), Call{}); err == nil ||
		!strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("%v", err)
	}
	for _, test := range []struct {
		target Target
		want   string
	}{
		{
			Target{URL: s.URL, CABundle: []byte("none")}, "unable to load root certificates: unable to parse bytes as PEM block",
		},
		{Target{}, "webhook configuration must have either service or URL"},
		{Target{URL: "https://[::1"}, `Unparsable URL: parse "https://[::1": missing ']' in host`},
	} {
		if _, err := New(test.target, Options{}); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

// TestRetryAfter: if a webhook answers with Retry-After, the call is repeated.
func TestRetryAfter(t *testing.T) {
	var calls atomic.Int32
	s, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(503)
		}
	})
	if _, err := client(t, Target{URL: s.URL, CABundle: ca}, Options{}).Post(t.Context(), Call{}); err != nil ||
		calls.Load() != 3 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestRetry(t *testing.T) {
	var calls atomic.Int32
	code := atomic.Int32{}
	s, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(int(code.Load()))
	})
	c := client(t, Target{URL: s.URL, CABundle: ca}, Options{})
	b := Backoff{Tries: 3, First: time.Millisecond}
	for _, test := range []struct{ code, calls int32 }{{500, 3}, {504, 3}, {429, 3}, {403, 1}, {200, 1}} {
		calls.Store(0)
		code.Store(test.code)
		err := Retry(t.Context(), b, IsTransient, func(ctx context.Context) error {
			_, err := c.Post(ctx, Call{})
			return err
		})
		if calls.Load() != test.calls || (err == nil) != (test.code == 200) {
			t.Errorf("%d: %d calls, %v", test.code, calls.Load(), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Retry(ctx, b, IsTransient, func(context.Context) error { return nil }); err == nil ||
		err.Error() != "webhook call failed: context canceled" {
		t.Errorf("%v", err)
	}
}

// TestConnectionsAreBounded: a webhook that hangs uses only its own connections.
func TestConnectionsAreBounded(t *testing.T) {
	var mu sync.Mutex
	var open, most int
	release := make(chan struct{})
	hung := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-release
	}))
	hung.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateNew:
			open++
			most = max(most, open)
		case http.StateClosed:
			open--
		}
	}
	hung.StartTLS()
	defer hung.Close()
	good, ca := serve(t, func(http.ResponseWriter, *http.Request) {})
	pool := NewPool(Options{}, 0)
	defer pool.Close()
	stuck, err := pool.Client(Target{URL: hung.URL, CABundle: ca})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range MaxConns + 50 {
		calls.Go(func() { stuck.Post(ctx, Call{}) })
	}
	well, err := pool.Client(Target{URL: good.URL, CABundle: ca})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := well.Post(t.Context(), Call{}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	calls.Wait()
	close(release)
	mu.Lock()
	defer mu.Unlock()
	// A call that times out closes its connection. The next call may open another one before the
	// server notes that, so the server may count more connections than the client has.
	if most > 2*MaxConns {
		t.Errorf("%d connections", most)
	}
}

// TestCloseEndsIdleConnections checks that no connection to a webhook stays open after the pool is closed.
func TestCloseEndsIdleConnections(t *testing.T) {
	closed := make(chan struct{}, 1)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	hook.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	hook.StartTLS()
	defer hook.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	pool := NewPool(Options{}, 0)
	c, err := pool.Client(Target{URL: hook.URL, CABundle: ca})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Post(t.Context(), Call{}); err != nil {
		t.Fatal(err)
	}
	pool.Close()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("the connection is open 20 s after Close")
	}
}

func TestPool(t *testing.T) {
	p := NewPool(Options{}, 2)
	get := func(url string) *Client {
		c, err := p.Client(Target{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := get("https://a"), get("https://b")
	if get("https://a") != a || get("https://b") != b {
		t.Error("not kept")
	}
	get("https://a")
	get("https://c")
	if get("https://a") != a {
		t.Error("what was used is gone")
	}
	if get("https://b") == b {
		t.Error("more are kept than allowed")
	}
	if _, err := p.Client(Target{}); err == nil {
		t.Error("no error")
	}
}

func TestKubeconfig(t *testing.T) {
	var authorization atomic.Value
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) { authorization.Store(r.Header.Get("Authorization")) })
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := func(cluster, user string) string {
		return write("config", fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, %s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, s.URL+"/authorize", cluster, user))
	}
	write("ca.crt", string(ca))
	write("token", " secret\n")
	for _, test := range []struct{ cluster, user, want string }{
		{"certificate-authority: ca.crt", "token: direct", "Bearer direct"},
		{"certificate-authority: ca.crt", "tokenFile: token", "Bearer secret"},
		{"certificate-authority-data: " + base64.StdEncoding.EncodeToString(ca), "username: a, password: b", "Basic YTpi"},
		{"insecure-skip-tls-verify: true", "", ""},
	} {
		c, err := FromKubeconfig(config(test.cluster, test.user), os.ReadFile, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Post(t.Context(), Call{}); err != nil || authorization.Load() != test.want {
			t.Errorf("%s %s: %v %q", test.cluster, test.user, err, authorization.Load())
		}
		if want := s.URL + "/authorize?timeout=1s"; c.URL(time.Second) != want {
			t.Error(c.URL(time.Second))
		}
		c.CloseIdle()
	}
	for _, test := range []struct{ cluster, user string }{
		{"certificate-authority: missing.crt", ""},
		{"", "tokenFile: missing"},
		{"", "exec: {command: sh}"},
		{"", "client-certificate: missing.crt, client-key: missing.key"},
		{"insecure-skip-tls-verify: true, certificate-authority: ca.crt", ""},
		{"proxy-url: http://x", ""},
	} {
		if _, err := FromKubeconfig(config(test.cluster, test.user), os.ReadFile, Options{}); err == nil {
			t.Errorf("%s %s: no error", test.cluster, test.user)
		}
	}
}

// TestCertificateOfKubeconfig checks that the client sends the certificate of the files that a kubeconfig names.
func TestCertificateOfKubeconfig(t *testing.T) {
	var seen atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.TLS.PeerCertificates[0].Raw)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	defer s.Close()
	pair := s.TLS.Certificates[0]
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	files := map[string][]byte{
		"/etc/crt": cert, "/etc/key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8(t, pair.PrivateKey)}),
		"/etc/kubeconfig": fmt.Appendf(nil, `{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority: crt}}],
users: [{name: u, user: {client-certificate: crt, client-key: /etc/key}}]}`, s.URL),
	}
	var asked []string
	read := func(path string) ([]byte, error) {
		asked = append(asked, path)
		return files[path], nil
	}
	c, err := FromKubeconfig("/etc/kubeconfig", read, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	if _, err := c.Post(t.Context(), Call{}); err != nil || !bytes.Equal(seen.Load().([]byte), pair.Certificate[0]) {
		t.Error(err)
	}
	if want := []string{"/etc/kubeconfig", "/etc/crt", "/etc/crt", "/etc/key"}; !slices.Equal(asked, want) {
		t.Errorf("read %q, not %q", asked, want)
	}
	files["/etc/key"] = []byte("no key")
	if _, err := FromKubeconfig("/etc/kubeconfig", read, Options{}); err == nil {
		t.Error("a key that does not belong to the certificate is accepted")
	}
}

// TestUse replaces a client while a call is in progress: that call ends at the webhook where it began, and the next one goes
// to the other webhook, which has another authority.
func TestUse(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	one := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-goOn
		fmt.Fprint(w, "one")
	}))
	defer one.Close()
	two := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "two") }))
	cert, key := selfSigned(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	two.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	two.StartTLS()
	defer two.Close()
	first := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Certificate().Raw})
	c := client(t, Target{URL: one.URL, CABundle: first}, Options{})
	answer := make(chan string, 1)
	go func() {
		body, err := c.Post(t.Context(), Call{})
		answer <- fmt.Sprint(string(body), err)
	}()
	wait(t, arrived, "the first call arrives")
	c.Use(client(t, Target{URL: two.URL, CABundle: cert}, Options{}))
	if body, err := c.Post(t.Context(), Call{}); string(body) != "two" || err != nil {
		t.Errorf("after the change: %q %v", body, err)
	}
	if want := two.URL + "?timeout=1s"; c.URL(time.Second) != strings.Replace(want, "?", "/?", 1) {
		t.Errorf("URL %s", c.URL(time.Second))
	}
	close(goOn)
	select {
	case got := <-answer:
		if got != "one<nil>" {
			t.Errorf("the call in progress: %s", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("the call in progress has not ended after 30 s")
	}
}

// wait waits for ch to be closed.
func wait(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(30 * time.Second):
		t.Fatalf("30 s have passed until %s", what)
	}
}

// TestPoolShowsNewCredentials checks that clients that the pool returns after SetCredentials send the new token.
func TestPoolShowsNewCredentials(t *testing.T) {
	var seen atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
	}))
	defer s.Close()
	token := func(text string) func(string) (Credentials, error) {
		return func(address string) (Credentials, error) {
			if "http://"+address != s.URL {
				t.Errorf("credentials for %s", address)
			}
			return Credentials{Token: text}, nil
		}
	}
	pool := NewPool(Options{Credentials: token("one")}, 0)
	defer pool.Close()
	for _, want := range []string{"one", "two"} {
		c, err := pool.Client(Target{URL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Post(t.Context(), Call{}); err != nil || seen.Load() != "Bearer "+want {
			t.Errorf("%v, shown %v, not %s", err, seen.Load(), want)
		}
		pool.SetCredentials(token("two"))
	}
}

func TestMetrics(t *testing.T) {
	m := NewCertificateMetrics("webhooks")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	counts := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			out[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
		}
		return out
	}
	m.Observe(nil, io.EOF)
	m.Observe(&http.Response{TLS: &tls.ConnectionState{}}, nil)
	s, ca := serve(t, func(http.ResponseWriter, *http.Request) {})
	if _, err := client(t, Target{URL: s.URL, CABundle: ca}, Options{Metrics: m}).Post(t.Context(), Call{}); err != nil {
		t.Fatal(err)
	}
	if c := counts(); len(c) != 2 || c["apiserver_webhooks_x509_missing_san_total"] != 0 ||
		c["apiserver_webhooks_x509_insecure_sha1_total"] != 0 {
		t.Error("good certificates are counted", c)
	}
	m.Observe(&http.Response{TLS: &tls.ConnectionState{PeerCertificates: withoutSAN(t)}}, nil)
	if c := counts(); c["apiserver_webhooks_x509_missing_san_total"] != 1 {
		t.Error("not counted", c)
	}
}

func TestIsTransient(t *testing.T) {
	for _, err := range []error{nil, io.EOF, apierrors.NewBadRequest("x")} {
		if IsTransient(err) {
			t.Error(err)
		}
	}
}

func BenchmarkPost(b *testing.B) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	defer s.Close()
	c, err := New(
		Target{URL: s.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
		Options{},
	)
	if err != nil {
		b.Fatal(err)
	}
	defer c.CloseIdle()
	body := bytes.Repeat([]byte("x"), 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Post(context.Background(), Call{Body: body}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestResolveByName(t *testing.T) {
	if got, err := ResolveByName(t.Context(), "ns", "hook", 443); got != "hook.ns.svc:443" || err != nil {
		t.Error(got, err)
	}
	if _, err := ResolveByName(t.Context(), "", "hook", 443); err == nil {
		t.Error("no error for a Service without a namespace")
	}
}

// TestCallsAreCounted calls a webhook that answers, and one that does not.
func TestCallsAreCounted(t *testing.T) {
	s, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") })
	m := NewMetrics()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	if _, err := client(t, Target{URL: s.URL, CABundle: ca}, Options{Metrics: m}).Post(
		t.Context(), Call{Body: []byte("question")}); err != nil {
		t.Fatal(err)
	}
	const closed = "https://127.0.0.1:1"
	if _, err := client(t, Target{URL: closed, CABundle: ca}, Options{Metrics: m}).Post(t.Context(), Call{}); err == nil {
		t.Fatal("somebody listens on port 1")
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	host := strings.TrimPrefix(s.URL, "https://")
	for _, want := range []string{
		`rest_client_requests_total{code="200",host="` + host + `",method="POST"} 1`,
		`rest_client_requests_total{code="<error>",host="127.0.0.1:1",method="POST"} 1`,
		`rest_client_request_size_bytes_sum{host="` + host + `",verb="POST"} 8`,
		`rest_client_response_size_bytes_sum{host="` + host + `",verb="POST"} 6`,
		`rest_client_request_duration_seconds_count{host="127.0.0.1:1",verb="POST"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("there is no %s in\n%s", want, w.Body)
		}
	}
}
