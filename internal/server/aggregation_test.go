package server

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// extension is an extension API server that serves version v1 of the group agg.example.com.
type extension struct {
	*httptest.Server
	port, bundle string
	// broken makes it answer every request 503.
	broken atomic.Bool
	// last is the last request below the version.
	last atomic.Pointer[http.Request]
	// special, unless nil, answers the requests for which it returns true.
	special func(http.ResponseWriter, *http.Request) bool
}

const extensionGroup = "/apis/agg.example.com/v1"

// extensionDocuments are what the server serves by path.
var extensionDocuments = map[string]string{
	"/apis": `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"agg.example.com"},
		"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"widgets","scope":"Namespaced",
		"responseKind":{"group":"agg.example.com","version":"v1","kind":"Widget"},"singularResource":"widget","verbs":["get"]}]}]}]}`,
	extensionGroup: `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"agg.example.com/v1","resources":[]}`,
	"/openapi/v3": `{"paths":{"apis/agg.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/agg.example.com/v1?hash=AAA"},
		"version":{"serverRelativeURL":"/openapi/v3/version?hash=B"}}}`,
	"/openapi/v3/apis/agg.example.com/v1": `{"openapi":"3.0.0","info":{"title":"extension","version":"1"},"paths":{}}`,
	"/openapi/v2": `{"paths":{"/apis/agg.example.com/v1/widgets":{"get":{"responses":{"200":{"description":"OK",
		"schema":{"$ref":"#/definitions/example.Widget"}}}}},"/version/":{}},"definitions":{"example.Widget":{}}}`,
}

func newExtension(t *testing.T) *extension {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"extension.default.svc"}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	e := &extension{}
	e.Server = httptest.NewUnstartedServer(e)
	e.EnableHTTP2 = true
	e.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequestClientCert,
	}
	e.StartTLS()
	t.Cleanup(e.Close)
	_, e.port, _ = net.SplitHostPort(e.Listener.Addr().String())
	e.bundle = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return e
}

// ServeHTTP serves the documents, and some paths below the version.
func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	below, _ := strings.CutPrefix(r.URL.Path, extensionGroup+"/")
	switch {
	case e.broken.Load():
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	case e.special != nil && e.special(w, r):
		return
	case extensionDocuments[r.URL.Path] != "":
		contentType := "application/json"
		if r.URL.Path == "/apis" {
			contentType += ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, extensionDocuments[r.URL.Path])
		return
	}
	e.last.Store(r.Clone(r.Context()))
	switch below {
	case "echo": // sends each part of the body back as soon as it arrives
		_ = http.NewResponseController(w).EnableFullDuplex()
		buffer := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	case "redirect":
		http.Redirect(w, r, "https://127.0.0.1:1/elsewhere", http.StatusFound)
	case "hang":
		<-r.Context().Done()
	case "upgrade":
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, "got "+line)
	default:
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI)
	}
}

// register registers the extension API server and waits until it is available.
func (e *extension) register(t *testing.T, c *http.Client, url string) {
	t.Helper()
	create := func(path, body string) {
		t.Helper()
		response, err := c.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			text, _ := io.ReadAll(response.Body)
			t.Fatalf("POST %s: %d %s", path, response.StatusCode, text)
		}
	}
	create("/api/v1/namespaces/default/services",
		`{"metadata":{"name":"extension"},"spec":{"type":"ExternalName","externalName":"127.0.0.1"}}`)
	create("/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`{"metadata":{"name":"v1.agg.example.com"},
		"spec":{"group":"agg.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,"caBundle":%q,
		"service":{"name":"extension","namespace":"default","port":%s}}}`, e.bundle, e.port))
	await(t, "the extension API server becoming available", func() bool {
		status, _, _ := fetch(t, c, http.MethodGet, url+extensionGroup, nil)
		return status == http.StatusOK
	})
}

// fetch sends a request and returns the status, the header and the body of the response.
func fetch(t *testing.T, c *http.Client, method, url string, header http.Header) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	response, err := c.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

// TestExtensionServer forwards requests to an extension API server. The responses are those of kube-apiserver 1.36.
func TestExtensionServer(t *testing.T) {
	e := newExtension(t)
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	e.register(t, c, s.URL())

	spoofed := http.Header{
		"X-Remote-User": {"eve"}, "X-Remote-Group": {"system:masters", "evil"}, "X-Remote-Extra-Key": {"x"},
		"X-Remote-Uid": {"1"},
	}
	status, _, body := fetch(t, c, http.MethodGet, s.URL()+extensionGroup+"/a%2Fb?x=1", spoofed)
	if want := "GET " + extensionGroup + "/a/b?x=1"; status != http.StatusOK || body != want {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	got := e.last.Load().Header
	if user, groups := got["X-Remote-User"], got["X-Remote-Group"]; fmt.Sprint(user, groups) !=
		"[kubernetes-admin] [system:masters system:authenticated]" || got["X-Remote-Extra-Key"] != nil ||
		got["X-Remote-Uid"] != nil || got["Authorization"] != nil || got["X-Forwarded-Proto"][0] != "https" {
		t.Errorf("headers %v", got)
	}
	if shown := e.last.Load().TLS.PeerCertificates; len(shown) == 0 || shown[0].Subject.CommonName != "front-proxy-client" {
		t.Errorf("the certificates of the server are %v", shown)
	}
	status, header, body := fetch(t, c, http.MethodGet, s.URL()+extensionGroup+"/redirect", nil)
	if status != http.StatusBadGateway || header.Get("Location") != "" ||
		body != "the backend attempted to redirect this request, which is not permitted" {
		t.Errorf("a redirect is answered %d %s", status, body)
	}
	status, _, body = fetch(t, c, http.MethodGet, s.URL()+extensionGroup+"/hang?timeout=100ms", nil)
	if status != http.StatusGatewayTimeout {
		t.Errorf("a request that times out is answered %d %s", status, body)
	}
	if status, _, _ = fetch(t, c, http.MethodGet, s.URL()+"/apis/agg.example.com/v2", nil); status != http.StatusNotFound {
		t.Errorf("another version is answered %d", status)
	}
}

// TestExtensionBodiesAreStreamed sends the second part of a body after it has received the first one back.
func TestExtensionBodiesAreStreamed(t *testing.T) {
	e := newExtension(t)
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	e.register(t, c, s.URL())
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+extensionGroup+"/echo", in)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan *http.Response, 1)
	go func() {
		response, err := c.Do(r)
		if err != nil {
			t.Error(err)
			close(answered)
			return
		}
		answered <- response
	}()
	const part, parts = 1 << 20, 8 // more than a body that this server itself would take
	sent := bytes.Repeat([]byte("x"), part)
	var response *http.Response
	received := make([]byte, part)
	for i := range parts {
		if _, err := out.Write(sent); err != nil {
			t.Fatal(err)
		}
		if response == nil {
			select {
			case response = <-answered:
			case <-time.After(patience):
			}
			if response == nil {
				t.Fatal("no response to the first part")
			}
			defer response.Body.Close()
		}
		if _, err := io.ReadFull(response.Body, received); err != nil || !bytes.Equal(sent, received) {
			t.Fatalf("part %d: %v", i, err)
		}
	}
	_ = out.Close()
	if _, err := response.Body.Read(received); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// TestExtensionUpgrade changes the protocol of a connection through the server.
func TestExtensionUpgrade(t *testing.T) {
	e := newExtension(t)
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	e.register(t, c, s.URL())
	config := c.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = fmt.Fprintf(conn, "GET %s/upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nhello\n",
		extensionGroup)
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "lines" {
		t.Fatalf("%v, %v", response, err)
	}
	if line, err := reader.ReadString('\n'); line != "got hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// condition returns the condition Available of the APIService.
func condition(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	_, _, body := fetch(t, c, http.MethodGet, url+"/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.example.com", nil)
	var o struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal([]byte(body), &o); err != nil || len(o.Status.Conditions) == 0 {
		return ""
	}
	return fmt.Sprint(o.Status.Conditions[0])
}

// TestExtensionServerIsDown stops and starts an extension API server, and looks at its APIService and at the documents.
func TestExtensionServerIsDown(t *testing.T) {
	e := newExtension(t)
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	e.register(t, c, s.URL())
	aggregated := http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}
	shows := func(path string, header http.Header, part string) func() bool {
		return func() bool {
			_, _, body := fetch(t, c, http.MethodGet, s.URL()+path, header)
			return strings.Contains(body, part)
		}
	}
	await(t, "the condition", func() bool {
		return condition(t, c, s.URL()) == "{Available True Passed all checks passed}"
	})
	const widgets = `"versions":[{"version":"v1","resources":[{"resource":"widgets"`
	await(t, "the resources in discovery", shows("/apis", aggregated, widgets))
	await(t, "the OpenAPI document", shows("/openapi/v3", nil, `"/openapi/v3/apis/agg.example.com/v1?hash=AAA"`))
	if !shows("/openapi/v3/apis/agg.example.com/v1", nil, `"title":"extension"`)() {
		t.Error("the OpenAPI v3 document is not that of the extension API server")
	}
	if !shows("/openapi/v2", nil, `"/apis/agg.example.com/v1/widgets":{"get":{`)() ||
		!shows("/openapi/v2", nil, `"example.Widget":{}`)() {
		t.Error("the OpenAPI v2 document lacks the extension API server")
	}

	e.broken.Store(true)
	// A request that is answered 503 has the server checked.
	await(t, "the condition False", func() bool {
		_, _, _ = fetch(t, c, http.MethodGet, s.URL()+extensionGroup+"/x", nil)
		return strings.HasPrefix(condition(t, c, s.URL()), "{Available False FailedDiscoveryCheck failing or missing response from "+
			"https://127.0.0.1:"+e.port+extensionGroup)
	})
	status, header, body := fetch(t, c, http.MethodGet, s.URL()+extensionGroup+"/x", nil)
	if status != http.StatusServiceUnavailable || body != "service unavailable\n" || header.Get("X-Apiservice-Failure") !=
		"v1.agg.example.com; FailedDiscoveryCheck" {
		t.Errorf("%d %s %v", status, body, header)
	}
	await(t, "the stale version in discovery", shows("/apis", aggregated, `"versions":[{"version":"v1","freshness":"Stale"}]`))
	if !shows("/metrics", nil, `aggregator_unavailable_apiservice{name="v1.agg.example.com"} 1`)() {
		t.Error("the metric does not say that the server is unavailable")
	}

	e.broken.Store(false)
	await(t, "the condition True", func() bool {
		return condition(t, c, s.URL()) == "{Available True Passed all checks passed}"
	})
	await(t, "the resources in discovery again", shows("/apis", aggregated, widgets))

	fetch(t, c, http.MethodDelete, s.URL()+"/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.example.com", nil)
	if status, _, _ := fetch(t, c, http.MethodGet, s.URL()+extensionGroup+"/x", nil); status != http.StatusNotFound {
		t.Errorf("after the APIService was deleted: %d", status)
	}
	if shows("/apis", nil, "agg.example.com")() {
		t.Error("the group is in discovery after the APIService was deleted")
	}
}

// TestHangingExtensionServer fills all places of an extension API server that hangs. Other requests are served, and the next
// one for it is refused.
func TestHangingExtensionServer(t *testing.T) {
	config := testConfig(t)
	config.Requests.MaxInFlight = 20
	e := newExtension(t)
	s := start(t, config)
	c := httpClient(t, s, true)
	e.register(t, c, s.URL())
	user := http.Header{"Impersonate-User": {"ann"}, "Impersonate-Group": {"dev"}}
	post(t, s, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"dev"},"roleRef":{"kind":"ClusterRole",
		"name":"cluster-admin"},"subjects":[{"kind":"Group","name":"dev"}]}`, http.StatusCreated)
	hang := func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+extensionGroup+"/hang", nil)
		if err != nil {
			return
		}
		r.Header = user.Clone()
		if response, err := c.Transport.RoundTrip(r); err == nil {
			_ = response.Body.Close()
		}
	}
	await(t, "a refusal", func() bool {
		go hang() // one of many, some of which may be refused
		status, _, _ := fetch(t, c, http.MethodGet, s.URL()+extensionGroup+"/other?timeout=1s", user)
		return status == http.StatusTooManyRequests
	})
	if status, _, body := fetch(t, c, http.MethodGet, s.URL()+"/api/v1/namespaces/default", user); status != http.StatusOK {
		t.Errorf("a request that is not for the extension API server: %d %s", status, body)
	}
}

// TestAvailabilityConditions changes the Service of an APIService and its endpoints. The conditions are those of
// kube-apiserver 1.36.
func TestAvailabilityConditions(t *testing.T) {
	s := start(t, testConfig(t))
	c := httpClient(t, s, true)
	const services, slices = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	patch := func(path, patch string) {
		t.Helper()
		w := sendAs(s, "", "", http.MethodPatch, path, "application/merge-patch+json", patch)
		if w.Code != http.StatusOK {
			t.Fatalf("PATCH %s: %d %s", path, w.Code, w.Body)
		}
	}
	expect := func(want string) {
		t.Helper()
		want = "{Available False " + want + "}"
		await(t, want, func() bool { return condition(t, c, s.URL()) == want })
	}
	post(t, s, "/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.agg.example.com"},
		"spec":{"group":"agg.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,
		"service":{"name":"extension","namespace":"default","port":8443}}}`, http.StatusCreated)
	expect(`ServiceNotFound service/extension in "default" is not present`)
	post(t, s, services, `{"metadata":{"name":"extension"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`,
		http.StatusCreated)
	expect(`ServicePortError service/extension in "default" is not listening on port 8443`)
	patch(services+"/extension", `{"spec":{"ports":[{"name":"https","port":8443}]}}`)
	expect(`EndpointsNotFound cannot find endpointslices for service/extension in "default"`)
	post(t, s, slices, `{"metadata":{"name":"e1","labels":{"kubernetes.io/service-name":"extension"}},"addressType":"IPv4",
		"endpoints":[{"addresses":["192.0.2.1"]}],"ports":[{"name":"http","port":8443}]}`, http.StatusCreated)
	const missing = `MissingEndpoints endpointslices for service/extension in "default" have no addresses with port name "https"`
	expect(missing)
	patch(slices+"/e1", `{"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":false}}],
		"ports":[{"name":"https","port":8443}]}`)
	expect(missing)
	patch(slices+"/e1", `{"endpoints":[{"addresses":["192.0.2.1"]}]}`)
	// By cluster IP the endpoints are not used.
	expect(`FailedDiscoveryCheck cannot route to service with ClusterIP "None"`)
	status, header, body := fetch(t, c, http.MethodGet, s.URL()+extensionGroup, nil)
	if status != http.StatusServiceUnavailable || body != "service unavailable\n" || header.Get("X-Apiservice-Failure") == "" {
		t.Errorf("%d %s", status, body)
	}
}
