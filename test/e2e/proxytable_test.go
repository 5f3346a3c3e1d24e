package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestProxiesAsKubeAPIServer sends random requests through nodes/proxy, pods/proxy, services/proxy and the other
// connections to pods to a scripted backend, from kube-apiserver and from Keelson. It fails if the backend gets another
// request, or the client another response. KEELSON_FUZZ_PAIRS is the number of requests, KEELSON_FUZZ_SEED repeats a run.
//
// The backend listens on an address of this machine that is not a loopback address: both servers refuse those.
func TestProxiesAsKubeAPIServer(t *testing.T) {
	ip := globalAddress(t)
	dir := logDir(t)
	seed := fuzzSeed(t)
	b := newBackend(t, ip)
	servers := []*apiServer{kubeAPIServer(t, dir, startEtcd(t, dir), "--disable-admission-plugins", "ServiceAccount"),
		keelsonOn(t, dir, "--disable-admission-plugins", "ServiceAccount")}
	for _, s := range servers {
		b.install(t, s)
	}
	var found differences
	tally := map[int]int{}
	var mu sync.Mutex // guards tally
	const workers = 4
	pairs := fuzzPairs(t)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := w; i < pairs; i += workers {
				r := b.request(rng)
				var d difference
				// A backend may close a connection just when a server uses it again, so a difference has to come twice.
				for try, differs := 0, true; differs && try < 2; try++ {
					var got [2]exchange
					for j, s := range servers {
						got[j] = b.exchange(s, r, fmt.Sprintf("case-%d-%d-%d", i, try, j))
					}
					if d, differs = r.compare(got[0], got[1]); differs && try == 1 {
						found.add(d)
					}
				}
				mu.Lock()
				tally[d.want.code]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d pairs; kube-apiserver answered %v", pairs, tally)
	found.report(t)
}

// globalAddress returns an address of this machine that other machines could reach.
func globalAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has loopback addresses only")
	return ""
}

// scriptedBackend answers as the header X-Script of a request says, and remembers what it got by the header X-Case.
type scriptedBackend struct {
	ip                    string
	plainPort, securePort string
	mu                    sync.Mutex // guards seen
	seen                  map[string]string
}

func newBackend(t *testing.T, ip string) *scriptedBackend {
	t.Helper()
	b := &scriptedBackend{ip: ip, seen: map[string]string{}}
	serve := func(secure bool) string {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ip+":0")
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(b)
		_ = s.Listener.Close() // its own listener, on a loopback address
		s.Listener = l
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	b.plainPort, b.securePort = serve(false), serve(true)
	return b
}

const backendPage = `<!doctype html><html><HEAD profile="/p"></HEAD><body background="/b.png"><a href="/x/y?z=1">x</a>` +
	`<a href='rel/x'>r</a><img SRC=/i.png usemap="#m"><a href="http://api.example/abs">a</a><a href="//other/y">o</a>` +
	`<script src="/s.js">var a = "<a href='/no'>" && 1 < 2;</script><form action="/f/"></form><iframe src="/q/"/>` +
	`<!-- <a href="/no"> --><style>a { b: url(/c) }</style><p title="a &amp; b">&lt;</p></body></html>`

// ServeHTTP implements http.Handler.
func (b *scriptedBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	b.mu.Lock()
	b.seen[r.Header.Get("X-Case")] = seenRequest(r, body, err)
	b.mu.Unlock()
	h := w.Header()
	h.Set("X-Backend", "1")
	script, argument, _ := strings.Cut(r.Header.Get("X-Script"), " ")
	switch script {
	case "status":
		var code int
		fmt.Sscan(argument, &code)
		h.Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		if code != http.StatusNoContent && code != http.StatusNotModified {
			fmt.Fprintf(w, "status %d", code)
		}
	case "location":
		h.Set("Location", argument)
		w.WriteHeader(http.StatusFound)
	case "created":
		h.Set("Location", argument)
		w.WriteHeader(http.StatusCreated)
	case "html":
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, backendPage)
	case "htmlgzip":
		h.Set("Content-Type", "text/html")
		h.Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, backendPage)
		_ = z.Close()
	case "htmlbr":
		h.Set("Content-Type", "text/html")
		h.Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, backendPage)
	case "headers":
		h["X-Twice"] = []string{"a", "b"}
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", "GET")
		h.Set("Access-Control-Expose-Headers", "X")
		h.Set("Cache-Control", "max-age=7")
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "1")
		h.Set("Proxy-Authenticate", "x")
		h.Set("Keep-Alive", "timeout=5")
		h["Set-Cookie"] = []string{"a=b", "c=d; Path=/"}
		h.Set("Audit-Id", "of-the-backend")
		_, _ = io.WriteString(w, "headers")
	case "trailer":
		h.Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		h.Set("X-Sum", "7")
	case "chunks":
		for i := range 3 {
			fmt.Fprintf(w, "chunk %d\n", i)
			_ = http.NewResponseController(w).Flush()
		}
	case "early":
		h.Set("Link", "</x>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "after hints")
	case "raw":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, strings.ReplaceAll(argument, "|", "\r\n"))
			_ = conn.Close()
		}
	case "echo":
		b.echo(w)
	default:
		_, _ = io.WriteString(w, "ok")
	}
}

// echo agrees to another protocol and sends back the first five bytes.
func (b *scriptedBackend) echo(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\nX-Up: 1\r\n\r\n")
	five := make([]byte, 5)
	if _, err := io.ReadFull(rw, five); err == nil {
		_, _ = conn.Write(five)
	}
}

// seenRequest returns a request as a text that can be compared.
func seenRequest(r *http.Request, body []byte, err error) string {
	h := r.Header.Clone()
	for _, name := range []string{"X-Case", "X-Forwarded-For", "Connection"} {
		h.Del(name)
	}
	// kube-apiserver unpacks what the client cannot; Keelson forwards what the client has sent.
	if h.Get("Accept-Encoding") == "gzip" {
		h.Del("Accept-Encoding")
	}
	uri := r.RequestURI
	if r.Header.Get("Upgrade") != "" {
		// Keelson does not forward what is for one connection only.
		for _, name := range []string{"Keep-Alive", "Te", "Proxy-Authorization", "Proxy-Connection"} {
			h.Del(name)
		}
	}
	if r.Header.Get("Upgrade") != "" && !strings.Contains(r.Header.Get("X-Script"), "kubelet") {
		uri, _, _ = strings.Cut(uri, "?") // kube-apiserver drops it
	}
	return fmt.Sprintf("%s %s %s %s body %q %v length %d", r.Method, uri, r.Host, headerText(h), body, err != nil,
		r.ContentLength)
}

func headerText(h http.Header) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		out = append(out, fmt.Sprintf("%s: %q", name, h[name]))
	}
	return strings.Join(out, ", ")
}

// install creates the node, the pods and the service that stand for the backend.
func (b *scriptedBackend) install(t *testing.T, s *apiServer) {
	t.Helper()
	send := func(method, path, contentType, object string) {
		t.Helper()
		if status, answer := s.must(t, method, path, jsonType, contentType, []byte(object)); status > 201 {
			t.Fatalf("%s: %s %s: %d %s", s.name, method, path, status, answer)
		}
	}
	post := func(path, object string) { t.Helper(); send(http.MethodPost, "/api/v1/"+path, jsonType, object) }
	post("namespaces", `{"metadata":{"name":"table"}}`)
	post("nodes", fmt.Sprintf(`{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":%q}],
		"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, b.ip, b.securePort))
	post("nodes", `{"metadata":{"name":"loop"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`)
	post("nodes", `{"metadata":{"name":"none"}}`)
	const pods, podForm = "namespaces/table/pods", `{"metadata":{"name":%q},"spec":{"nodeName":%q,"containers":[
		{"name":"c","image":"i","ports":[{"containerPort":%s}]}]}}`
	for _, pod := range [][]any{{"p", "n1", b.plainPort}, {"noip", "", "80"}, {"lost", "gone", "80"}, {"local", "loop", "80"}} {
		post(pods, fmt.Sprintf(podForm, pod...))
	}
	post(pods, `{"metadata":{"name":"two"},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"},
		{"name":"d","image":"i"}],"initContainers":[{"name":"i","image":"i"}]}}`)
	for pod, ip := range map[string]string{"p": b.ip, "local": "127.0.0.1"} {
		send(http.MethodPatch, "/api/v1/"+pods+"/"+pod+"/status", "application/merge-patch+json",
			fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip))
	}
	post("namespaces/table/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"name":"http","port":80},
		{"name":"tls","port":443},{"name":"none","port":81}]}}`)
	post("namespaces/table/services", `{"metadata":{"name":"empty"},"spec":{"ports":[{"port":80}]}}`)
	post("namespaces/table/endpoints", fmt.Sprintf(`{"metadata":{"name":"s"},"subsets":[{"addresses":[{"ip":%q,
		"targetRef":{"kind":"Pod","namespace":"table","name":"p"}},{"ip":"10.99.0.1"}],
		"ports":[{"name":"http","port":%s},{"name":"tls","port":%s}]}]}`, b.ip, b.plainPort, b.securePort))
}

// tableRequest is one request for both servers.
type tableRequest struct {
	group   string // the requests of a group probably differ for the same reason
	text    string // with CASE in place of the name of the case
	upgrade bool
	method  string
}

// choose returns one of the choices.
func choose(rng *rand.Rand, choices ...string) string { return choices[rng.IntN(len(choices))] }

// request returns a random request.
func (b *scriptedBackend) request(rng *rand.Rand) tableRequest {
	r := tableRequest{method: choose(rng, "GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")}
	target, path := b.target(rng)
	script := choose(rng, "ok", "ok", "status 200", "status 204", "status 304", "status 404", "status 500", "status 503",
		"location /next", "location next/", "location http://api.example/abs?x#y", "location http://elsewhere/z",
		"location http://"+b.ip+":"+b.plainPort+"/same/", "location http://[/", "created /made", "html", "html", "htmlgzip",
		"htmlbr", "headers", "trailer", "chunks", "early", "raw HTTP/1.1 200 OK|Content-Length: 100||cut off",
		"raw nonsense||", "raw ", "raw HTTP/1.1 200 OK|Transfer-Encoding: chunked||zz|", "raw HTTP/1.0 200 OK||until the end",
		"raw HTTP/1.1 101 Switching Protocols|Connection: Upgrade|Upgrade: x||",
		"raw HTTP/1.1 200 OK|Content-Type: text/html|Content-Encoding: gzip|Connection: close|Content-Length: 4||abcd",
		"raw HTTP/1.1 999 Odd|Connection: close|Content-Length: 2||ok")
	var headers []string
	add := func(format string, args ...any) { headers = append(headers, fmt.Sprintf(format, args...)) }
	add("Accept-Encoding: %s", choose(rng, "identity", "gzip", "br, gzip"))
	for range rng.IntN(4) {
		add("%s", choose(rng, "X-Remote-User: evil", "X-Remote-Group: system:masters", "X-Remote-Extra-A: b", "X-Remote-Uid: 1",
			"X-Forwarded-Host: h", "X-Forwarded-Proto: gopher", "Forwarded: for=x", "X-Forwarded-Uri: /u", "Cookie: a=b",
			"Te: trailers", "Keep-Alive: timeout=1", "Proxy-Authorization: x", "Referer: http://r/", "Range: bytes=0-3",
			"If-None-Match: x", "X-Twice: 1\r\nX-Twice: 2", "Accept: text/html", "Accept: text/plain", "User-Agent: table", "Origin: http://o",
			"X-Stream-Protocol-Version: v4.channel.k8s.io", "Expect: 100-continue", "Proxy-Connection: close", "X-Empty:"))
	}
	body := ""
	switch {
	case rng.IntN(6) == 0:
		r.upgrade = true
		script = choose(rng, "echo", "echo", "status 400", "status 403", "status 500", "status 200", "location /next", "headers",
			"raw nonsense||", "raw ")
		add("Connection: %s", choose(rng, "Upgrade", "upgrade", "keep-alive, Upgrade"))
		add("Upgrade: %s", choose(rng, "SPDY/3.1", "test"))
	case rng.IntN(8) == 0:
		add("Connection: X-Mine, close")
		add("X-Mine: 1")
	}
	if r.method != "GET" && r.method != "HEAD" && !r.upgrade && rng.IntN(2) == 0 {
		switch text := strings.Repeat("b", rng.IntN(20)+1); rng.IntN(3) {
		case 0:
			add("Transfer-Encoding: chunked")
			body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(text), text)
		default:
			add("Content-Length: %d", len(text))
			body = text
		}
	} else if r.method != "GET" && r.method != "HEAD" {
		add("Content-Length: 0")
	}
	if !strings.Contains(target, "/proxy") {
		script += " kubelet"
	}
	query := choose(rng, "", "", "?a=1&b=2", "?a=%zz", "?dry=1;x", "?dryRun=All", "?path=/evil", "?watch=true", "?")
	r.group = fmt.Sprintf("%s %s: %s", r.method, strings.Split(target, "?")[0], script)
	if r.upgrade {
		r.group = "upgrade " + r.group
	}
	if strings.Contains(target, "?") {
		query = ""
	}
	r.text = fmt.Sprintf("%s /api/v1/%s%s%s HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer %s\r\n"+
		"X-Case: CASE\r\nX-Script: %s\r\n%s\r\n\r\n%s", r.method, target, path, query, adminToken, script,
		strings.Join(headers, "\r\n"), body)
	return r
}

// target returns a subresource that is forwarded, and a path below it.
func (b *scriptedBackend) target(rng *rand.Rand) (target, path string) {
	const ns = "namespaces/table/"
	pods, services := ns+"pods/", ns+"services/"
	if rng.IntN(8) == 0 {
		return choose(rng, pods+"p/log", pods+"p/log?follow=true&tailLines=5", pods+"two/log", pods+"two/log?container=d",
			pods+"lost/log", pods+"noip/log", pods+"p/log?sinceTime=yesterday", pods+"p/log?limitBytes=x", pods+"p/exec?command=a",
			pods+"p/exec?command=a&stdout=1&stdin=0&tty=false&stderr", pods+"two/exec?container=i", pods+"lost/exec?command=a",
			pods+"p/attach?stdin=true", pods+"two/attach", pods+"p/portforward?ports=1,2&ports=3", pods+"p/portforward?ports=x",
			pods+"p/portforward?ports=99999", pods+"noip/portforward"), ""
	}
	target = choose(rng, "nodes/n1", "nodes/n1:"+b.plainPort, "nodes/http:n1:"+b.plainPort, "nodes/https:n1:"+b.securePort,
		"nodes/n1:"+b.securePort, "nodes/loop", "nodes/none", "nodes/gone", "nodes/ftp:n1:1", pods+"p", pods+"p:"+b.plainPort,
		pods+"http:p:"+b.plainPort, pods+"https:p:"+b.securePort, pods+"p:1", pods+"noip", pods+"local", pods+"gone",
		pods+"two", pods+"a:b:c:d", pods+"http:p:", services+"s", services+"s:http", services+"s:80", services+"https:s:tls",
		services+"https:s:443", services+"s:none", services+"s:81", services+"s:9", services+"empty", services+"gone:http",
		services+"gone:80", services+"ftp:s:http") + "/proxy"
	if rng.IntN(6) == 0 {
		return target, choose(rng, "", "/")
	}
	for range rng.IntN(4) + 1 {
		path += "/" + choose(rng, "a", "b.html", "a%2Fb", "a%20b", "%3Fq", "%23", "..", ".", "", "%2e%2e", "a;b", "a:b", "a+b", "ü", "%C3%BC",
			"a=b&c", "proxy", "watch", "%25", "~x")
	}
	return target, path + choose(rng, "", "", "/")
}

// exchange is what happened to a request.
type exchange struct {
	status       int
	client, seen string // the response, and what the backend got
}

// exchange sends a request to a server.
func (b *scriptedBackend) exchange(s *apiServer, r tableRequest, name string) exchange {
	out, err := exchangeRaw(s, r, strings.Replace(r.text, "X-Case: CASE", "X-Case: "+name, 1))
	if err != nil {
		out.client = "no response" // the texts of errors of the connection depend on the moment
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out.seen = b.seen[name]
	delete(b.seen, name)
	return out
}

func exchangeRaw(s *apiServer, r tableRequest, text string) (exchange, error) {
	var out exchange
	//nolint:gosec // the server runs on this machine
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return out, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return out, err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return out, err
	}
	in := bufio.NewReader(conn)
	var early []int
	response, err := http.ReadResponse(in, &http.Request{Method: r.method})
	for err == nil && response.StatusCode < 200 && response.StatusCode != http.StatusSwitchingProtocols {
		if response.StatusCode != http.StatusContinue { // how often that comes depends on the moment
			early = append(early, response.StatusCode)
		}
		response, err = http.ReadResponse(in, &http.Request{Method: r.method})
	}
	if err != nil {
		return out, err
	}
	out.status = response.StatusCode
	var body []byte
	if out.status == http.StatusSwitchingProtocols {
		_, _ = io.WriteString(conn, "hello")
		body, err = io.ReadAll(in)
	} else {
		body, err = io.ReadAll(response.Body)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err != nil && len(body) > 0 {
		body = append(body, " (cut off)"...)
	}
	h := response.Header
	if r.upgrade && out.status >= http.StatusBadRequest { // kube-apiserver does not add them to the backend's
		h.Del("Audit-Id")
		h.Del("Cache-Control")
	}
	if strings.Contains(text, "X-Script: raw") && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		h.Del("Content-Type") // net/http guesses it, unless the header is sent before the body is there
	}
	if strings.Contains(text, "||zz|") && len(body) < 20 {
		return out, io.ErrUnexpectedEOF // whether the header is sent before the error depends on the moment
	}
	out.client = fmt.Sprintf("%v %d %s trailer %s body %q", early, out.status, clientHeaders(response), headerText(response.Trailer),
		plainBody(response.Header, body))
	return out, nil
}

// clientHeaders returns the headers of a response but for those that differ from request to request.
func clientHeaders(response *http.Response) string {
	h := response.Header.Clone()
	for _, name := range []string{"Date", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Content-Length"} {
		h.Del(name)
	}
	for i, id := range h["Audit-Id"] {
		if id != "of-the-backend" {
			h["Audit-Id"][i] = "an id"
		}
	}
	return headerText(h)
}

// plainBody returns a body unpacked, and without what depends on the server and the connection.
func plainBody(h http.Header, body []byte) string {
	if h.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			if plain, err := io.ReadAll(z); err == nil {
				body = plain
			}
		}
	}
	text := string(body)
	if h.Get("Content-Type") == "application/json" {
		text = strings.ReplaceAll(strings.Join(strings.Fields(text), ""), "\n", "")
	}
	return text
}

// compare returns how the exchanges differ.
func (r tableRequest) compare(want, got exchange) (difference, bool) {
	d := difference{group: r.group, request: r.text, want: outcome{code: want.status}, got: outcome{code: got.status}}
	switch {
	case want.seen != got.seen:
		d.wrong = "the backend gets another request"
		d.want.message, d.got.message = want.seen, got.seen
	case want.client != got.client:
		d.wrong = "the client gets another response"
		d.want.message, d.got.message = want.client, got.client
	default:
		return d, false
	}
	// kube-apiserver closes the body of a page in an encoding that it does not know, and forwards nothing of it.
	if strings.Contains(r.text, "X-Script: htmlbr") && want.client == "no response" {
		return d, false
	}
	return d, true
}
