package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"golang.org/x/net/websocket"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// connectionWait is the longest time for which the tests of connections wait for an event.
const connectionWait = 20 * time.Second

// connectedCluster is a server whose connections to nodes and pods all end in the test. A connection to port 10250
// reaches the test's kubelet, which speaks TLS. All others reach its pods.
type connectedCluster struct {
	*Server
	t             testing.TB
	http          *http.Client
	kubelet, pods *httptest.Server

	mu     sync.Mutex // guards the fields below
	dialed []string
	seen   []*http.Request
	bodies []string
	answer http.HandlerFunc // nil means the answer "ok"
}

// startCluster starts a server with a node n1, the pods running (on n1), waiting and two (without a node), and a service.
func startCluster(t testing.TB, change func(*settings)) *connectedCluster {
	c := &connectedCluster{t: t}
	c.kubelet = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	c.kubelet.EnableHTTP2 = true
	c.kubelet.StartTLS()
	c.pods = httptest.NewServer(http.HandlerFunc(c.serve))
	conf := testConfig(t)
	conf.Storage.Backend = config.StorageMemory
	conf.Admission.Disable = append(conf.Admission.Disable, "ServiceAccount")
	conf.Network.Connections.Dial = c.dial
	if change != nil {
		change(&conf)
	}
	c.Server = start(t, conf)
	t.Cleanup(func() {
		for _, s := range []*httptest.Server{c.kubelet, c.pods} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	c.http = httpClient(t, c.Server, true)
	c.create("nodes", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"},"status":{
		"addresses":[{"type":"InternalIP","address":"10.9.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}`)
	for _, pod := range []string{
		`"metadata":{"name":"running"},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i",
			"ports":[{"containerPort":8080}]}]}`,
		`"metadata":{"name":"waiting"},"spec":{"containers":[{"name":"c","image":"i"}]}`,
		`"metadata":{"name":"two"},"spec":{"nodeName":"n1","initContainers":[{"name":"i","image":"i"}],
			"containers":[{"name":"c","image":"i"},{"name":"d","image":"i"}]}`,
	} {
		c.create("namespaces/default/pods", `{"kind":"Pod","apiVersion":"v1",`+pod+"}")
	}
	c.setPodIP("running", "10.8.0.1")
	c.create("namespaces/default/services", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"web"},"spec":{
		"ports":[{"name":"http","port":80,"targetPort":8080}]}}`)
	for _, slice := range []string{
		`"metadata":{"name":"web-1","labels":{"kubernetes.io/service-name":"web"}},"endpoints":[{"addresses":["10.8.0.9"]},
			{"addresses":["10.8.0.2"],"conditions":{"ready":false},
				"targetRef":{"kind":"Pod","namespace":"default","name":"waiting"}}]`,
		`"metadata":{"name":"web-2","labels":{"kubernetes.io/service-name":"web"}},"endpoints":[
			{"addresses":["10.8.0.1"],"targetRef":{"kind":"Pod","namespace":"default","name":"running"}},
			{"addresses":["10.8.0.7"],"targetRef":{"kind":"Pod","namespace":"default","name":"running"}}]`,
		`"metadata":{"name":"other","labels":{"kubernetes.io/service-name":"other"}},"endpoints":[
			{"addresses":["10.8.0.1"],"targetRef":{"kind":"Pod","namespace":"default","name":"running"}}]`,
	} {
		c.createAt("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"kind":"EndpointSlice",
			"apiVersion":"discovery.k8s.io/v1","addressType":"IPv4","ports":[{"name":"http","port":8080}],`+slice+"}")
	}
	return c
}

// dial connects to the kubelet or the pods of the test instead of the address, and records the address.
func (c *connectedCluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	c.dialed = append(c.dialed, address)
	c.mu.Unlock()
	to := c.pods
	if strings.HasSuffix(address, ":10250") {
		to = c.kubelet
	}
	return (&net.Dialer{}).DialContext(ctx, network, to.Listener.Addr().String())
}

func (c *connectedCluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	answer := c.answer
	c.mu.Unlock()
	var body []byte
	if answer == nil {
		body, _ = io.ReadAll(r.Body) // the read fails if the client is gone
	}
	c.mu.Lock()
	c.seen, c.bodies = append(c.seen, r), append(c.bodies, string(body))
	c.mu.Unlock()
	if answer == nil {
		fmt.Fprint(w, "ok")
		return
	}
	answer(w, r)
}

// on sets the handler for requests to the kubelet and the pods.
func (c *connectedCluster) on(answer http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// last returns the last request that a kubelet or a pod got, and its body, and forgets all.
func (c *connectedCluster) last() (*http.Request, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) == 0 {
		return nil, ""
	}
	r, body := c.seen[len(c.seen)-1], c.bodies[len(c.seen)-1]
	c.seen, c.bodies = nil, nil
	return r, body
}

// dials returns the addresses of connections since the last call.
func (c *connectedCluster) dials() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	dialed := c.dialed
	c.dialed = nil
	return dialed
}

func (c *connectedCluster) create(path, object string) {
	c.t.Helper()
	c.createAt("/api/v1/"+path, object)
}

func (c *connectedCluster) createAt(path, object string) {
	c.t.Helper()
	if a := apitest.Send(c.t, c.http, "POST", c.URL()+path, object); a.Status != http.StatusCreated {
		c.t.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
}

func (c *connectedCluster) patchStatus(path, patch string) {
	c.t.Helper()
	a := callWith(c.t, c.http, "admintoken", "PATCH", c.URL()+"/api/v1/"+path+"/status",
		"application/merge-patch+json", patch)
	if a.Status != http.StatusOK {
		c.t.Fatalf("%s: %d %s", path, a.Status, a.Body)
	}
}

func (c *connectedCluster) setPodIP(pod, ip string) {
	c.t.Helper()
	c.patchStatus("namespaces/default/pods/"+pod, fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip))
}

// path returns the URL of a path below /api/v1. Other paths than "nodes/..." are in the namespace default.
func (c *connectedCluster) path(path string) string {
	if !strings.HasPrefix(path, "nodes/") {
		path = "namespaces/default/" + path
	}
	return c.URL() + "/api/v1/" + path
}

func TestLogs(t *testing.T) {
	c := startCluster(t, nil)
	for path, want := range map[string]struct {
		status       int
		message, uri string // what the client receives; the URI that the kubelet receives
	}{
		"pods/running/log": {200, "", "/containerLogs/default/running/c"},
		"pods/running/log?follow=1&previous=true&timestamps=yes&sinceSeconds=5&tailLines=0&limitBytes=7": {200, "",
			"/containerLogs/default/running/c?follow=true&limitBytes=7&previous=true&sinceSeconds=5&tailLines=0&timestamps=true"},
		"pods/running/log?sinceTime=2020-01-01T01:00:00%2B01:00&follow=false": {200, "",
			"/containerLogs/default/running/c?sinceTime=2020-01-01T00%3A00%3A00Z"},
		"pods/two/log?container=i":                        {200, "", "/containerLogs/default/two/i"},
		"pods/running/log?insecureSkipTLSVerifyBackend=1": {200, "", "/containerLogs/default/running/c"},
		"pods/two/log":                                     {400, "a container name must be specified for pod two, choose one of: [i c d]", ""},
		"pods/two/log?container=x":                         {400, "container x is not valid for pod two", ""},
		"pods/waiting/log":                                 {204, "", ""},
		"pods/missing/log":                                 {404, `pods "missing" not found`, ""},
		"pods/running/log?tailLines=x":                     {400, `strconv.ParseInt: parsing "x": invalid syntax`, ""},
		"pods/running/log?limitBytes=0":                    {422, `PodLogOptions "running" is invalid: limitBytes: Invalid value: 0: must be greater than 0`, ""},
		"pods/running/log?stream=Stdout":                   {422, `PodLogOptions "running" is invalid: stream: Forbidden: may not be specified`, ""},
		"pods/running/log?sinceSeconds=0":                  {422, `PodLogOptions "running" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0`, ""},
		"pods/running/log?container=x&tailLines=-1&dryRun": {422, `PodLogOptions "running" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0`, ""},
	} {
		a := apitest.Send(t, c.http, "GET", c.path(path), "")
		if a.Status != want.status || a.Message() != want.message {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
		uri := ""
		if r, _ := c.last(); r != nil {
			uri = r.URL.RequestURI()
		}
		if uri != want.uri {
			t.Errorf("%s: the kubelet was asked %q", path, uri)
		}
		if want.status == 200 && (a.Body != "ok" || a.Header.Get("Content-Type") != "text/plain") {
			t.Errorf("%s: %q %v", path, a.Body, a.Header)
		}
	}
	for code, want := range map[int]string{
		400: `the kubelet says no`, 500: `Internal error occurred: the kubelet says no`,
		404: `the server could not find the requested resource ( pods/log running)`,
		302: `Get "http://elsewhere/": redirects forbidden`,
	} {
		c.on(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://elsewhere/")
			w.WriteHeader(code)
			fmt.Fprint(w, "the kubelet says no")
		})
		status := code
		if code == 302 {
			status = 500
		}
		if a := apitest.Send(t, c.http, "GET", c.path("pods/running/log"), ""); a.Status != status || a.Message() != want {
			t.Errorf("kubelet answers %d: %d %s", code, a.Status, a.Body)
		}
	}
	c.on(nil)
	conn, err := c.webSocket("pods/running/log", "admintoken", "binary.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); string(text) != "ok" || err != nil {
		t.Errorf("over WebSocket: %q, %v", text, err)
	}
	if a := apitest.Send(t, c.http, "POST", c.path("pods/running/log"), ""); a.Status != 405 {
		t.Errorf("POST: %d", a.Status)
	}
}

// TestLogsAreFollowed reads each line of a log before the kubelet sends the next one.
func TestLogsAreFollowed(t *testing.T) {
	c := startCluster(t, nil)
	lines, ended := make(chan string), make(chan struct{})
	c.on(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for {
			select {
			case line := <-lines:
				fmt.Fprintln(w, line)
				_ = http.NewResponseController(w).Flush() // the client is there until the end
			case <-r.Context().Done():
				return
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), connectionWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", c.path("pods/running/log?follow=true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { lines <- "0" }()
	w, err := c.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	in := bufio.NewScanner(w.Body)
	for i := range 3 {
		if i > 0 {
			lines <- fmt.Sprint(i)
		}
		if !in.Scan() || in.Text() != fmt.Sprint(i) {
			t.Fatalf("line %d: %q, %v", i, in.Text(), in.Err())
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(connectionWait):
		t.Error("the request to the kubelet goes on although the client is gone")
	}
}

func TestProxiesForward(t *testing.T) {
	c := startCluster(t, nil)
	noEndpoints := `no endpoints available for service "web"`
	for request, want := range map[string]struct {
		status            int
		message, uri, dst string
	}{
		"GET nodes/n1/proxy/a%2Fb%3F/../c/?x=%zz&y=1": {200, "", "/a/c/?x=%zz&y=1", "10.9.0.1:10250"},
		"POST nodes/n1:10250/proxy/run?x":             {200, "", "/run?x", "10.9.0.1:10250"},
		"GET nodes/http:n1:1234/proxy/":               {200, "", "/", "10.9.0.1:1234"},
		"GET pods/running/proxy/x":                    {200, "", "/x", "10.8.0.1:8080"},
		"DELETE pods/running:99/proxy":                {200, "", "/", "10.8.0.1:99"},
		"OPTIONS pods/running/proxy/x//y":             {200, "", "/x/y", "10.8.0.1:8080"},
		"PATCH pods/running/proxy/watch/z":            {200, "", "/watch/z", "10.8.0.1:8080"},
		"PUT services/web:http/proxy/":                {200, "", "/", "10.8.0.1:8080"},
		"GET services/http:web:80/proxy/q?dry=1":      {200, "", "/q?dry=1", "10.8.0.1:8080"},
		"GET services/web:81/proxy/":                  {503, `no service port 81 found for service "web"`, "", ""},
		"GET services/web:x/proxy/":                   {503, noEndpoints, "", ""},
		"GET services/none/proxy/":                    {503, `no endpoints available for service "none"`, "", ""},
		"GET services/ftp:web:http/proxy/":            {400, `invalid service request "ftp:web:http"`, "", ""},
		"GET pods/waiting/proxy/":                     {400, "address not allowed", "", ""},
		"GET pods/a:b:c:d/proxy/":                     {400, `invalid pod request "a:b:c:d"`, "", ""},
		"GET nodes/n2/proxy/":                         {404, `nodes "n2" not found`, "", ""},
		"GET nodes/n1/proxy/?dryRun=All":              {400, "dryRun is not supported", "", ""},
		"TRACE nodes/n1/proxy/":                       {405, "the server does not allow this method on the requested resource", "", ""},
	} {
		method, path, _ := strings.Cut(request, " ")
		a := apitest.Send(t, c.http, method, c.path(path), "body of "+method)
		if a.Status != want.status || a.Message() != want.message {
			t.Errorf("%s: %d %s", request, a.Status, a.Body)
		}
		r, body := c.last()
		if want.uri == "" {
			if r != nil {
				t.Errorf("%s: forwarded as %s", request, r.URL)
			}
			continue
		}
		if r == nil || r.URL.RequestURI() != want.uri || r.Method != method || body != "body of "+method || a.Body != "ok" {
			t.Errorf("%s: forwarded as %+v %q", request, r, body)
		}
		if d := c.dials(); len(d) > 0 && d[0] != want.dst {
			t.Errorf("%s: connected to %s", request, d)
		}
	}
	// Endpoints are chosen at random, so several requests are needed to see that only those of pods are chosen.
	for range 30 {
		if a := apitest.Send(t, c.http, "GET", c.path("services/web:http/proxy/"), ""); a.Status != 200 {
			t.Errorf("service: %d %s", a.Status, a.Body)
		}
	}
	if d := c.dials(); slices.Contains(d, "10.8.0.9:8080") {
		t.Errorf("service: connected to %s", d)
	}
	once := &http.Client{Transport: c.http.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	a := apitest.Send(t, once, "GET", c.path("pods/running/proxy?a=1"), "")
	if want := "/api/v1/namespaces/default/pods/running/proxy/?a=1"; a.Status != 301 || a.Header.Get("Location") != want {
		t.Errorf("without a slash: %d %v", a.Status, a.Header)
	}
	c.on(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/next")
		w.WriteHeader(http.StatusFound)
	})
	a = apitest.Send(t, once, "GET", c.path("pods/running/proxy/x"), "")
	if want := "/api/v1/namespaces/default/pods/running/proxy/next"; a.Status != 302 || a.Header.Get("Location") != want {
		t.Errorf("redirect: %d %v", a.Status, a.Header)
	}
	c.on(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	a = apitest.Send(t, once, "GET", c.path("pods/running/proxy/x"), "")
	if a.Status != 503 || !strings.HasPrefix(a.Message(), "error trying to reach service: ") {
		t.Errorf("broken answer: %d %s", a.Status, a.Body)
	}
}

// TestSpoofedIdentityIsNotForwarded sends headers that only a front proxy may send.
func TestSpoofedIdentityIsNotForwarded(t *testing.T) {
	c := startCluster(t, nil)
	a := apitest.Send(t, c.http, "GET", c.path("pods/running/proxy/x"), "",
		"X-Remote-User", "evil", "X-Remote-Group", "system:masters",
		"X-Remote-Extra-Scopes", "all", "X-Remote-Uid", "0", "Authorization", "Bearer admintoken", "X-Other", "kept")
	if a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	r, _ := c.last()
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Remote-") || name == "Authorization" {
			t.Errorf("%s was forwarded", name)
		}
	}
	if r.Header.Get("X-Other") != "kept" {
		t.Errorf("headers: %v", r.Header)
	}
}

// TestAddressesThatAreNotAllowed gives nodes and pods addresses of the server's own machine (CVE-2022-3294), and
// uses a host name that resolves to another address at the second lookup (CVE-2020-8562).
func TestAddressesThatAreNotAllowed(t *testing.T) {
	var mu sync.Mutex
	var answers []string // results of the next lookups of "host"
	c := startCluster(t, func(conf *settings) {
		conf.lookup = func(_ context.Context, host string) ([]net.IPAddr, error) {
			if host == "host" {
				mu.Lock()
				defer mu.Unlock()
				if len(answers) == 0 {
					return []net.IPAddr{{IP: net.ParseIP("127.0.0.1")}}, nil
				}
				host, answers = answers[0], answers[1:]
			}
			return []net.IPAddr{{IP: net.ParseIP(host)}}, nil
		}
	})
	setNode := func(address string) {
		c.patchStatus("nodes/n1", fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, address))
	}
	for _, address := range []string{
		"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255",
		"::ffff:127.0.0.1",
	} {
		setNode(address)
		paths := []string{"nodes/n1/proxy/", "nodes/n1:80/proxy/", "nodes/https:n1:10250/proxy/x"}
		if address != "::ffff:127.0.0.1" { // not a valid address for a pod
			c.setPodIP("running", address)
			paths = append(paths, "pods/running/proxy/")
		}
		for _, path := range paths {
			if a := apitest.Send(t, c.http, "GET", c.path(path), ""); a.Status != 400 || a.Message() != "address not allowed" {
				t.Errorf("%s at %s: %d %s", path, address, a.Status, a.Body)
			}
		}
	}
	if d := c.dials(); len(d) > 0 {
		t.Errorf("connected to %s", d)
	}
	setNode("host")
	answers = []string{"10.9.0.7"}
	if a := apitest.Send(t, c.http, "GET", c.path("nodes/n1/proxy/"), ""); a.Status != 200 {
		t.Errorf("by name: %d %s", a.Status, a.Body)
	}
	if d := c.dials(); !slices.Equal(d, []string{"10.9.0.7:10250"}) {
		t.Errorf("by name: connected to %s", d)
	}
	if a := apitest.Send(t, c.http, "GET", c.path("nodes/n1/proxy/"), ""); a.Status != 400 {
		t.Errorf("by name, which now stands for a loopback address: %d %s", a.Status, a.Body)
	}
}

// TestKubeletsAreVerified checks that the server verifies the certificates of kubelets and presents its own client
// certificate to them.
func TestKubeletsAreVerified(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := startCluster(t, nil)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.kubelet.Certificate().Raw})
	admin := c.Admin()
	block, _ := pem.Decode(admin.Cert)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 10)
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown <- r.TLS.PeerCertificates[0].Subject.CommonName
		fmt.Fprint(w, "ok")
	}))
	kubelet.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert}
	kubelet.StartTLS()
	t.Cleanup(kubelet.Close)
	for name, test := range map[string]struct {
		ca      []byte
		address string
		want    string
	}{
		"verified":    {ca, "example.com", ""}, // a name of the certificate of httptest
		"other name":  {ca, "10.9.0.1", "x509: certificate is valid for 127.0.0.1, ::1, not 10.9.0.1"},
		"other CA":    {c.CA(), "example.com", "x509: certificate signed by unknown authority"},
		"no CA given": {nil, "10.9.0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := startCluster(t, func(made *settings) {
				made.Network.Connections.KubeletCertFile = file("crt", admin.Cert)
				made.Network.Connections.KubeletKeyFile = file("key", admin.Key)
				if test.ca != nil {
					made.Network.Connections.KubeletCAFile = file("ca", test.ca)
				}
				made.Network.Connections.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, kubelet.Listener.Addr().String())
				}
			})
			d.patchStatus("nodes/n1",
				fmt.Sprintf(`{"status":{"addresses":[{"type":"Hostname","address":%q}]}}`, test.address))
			a := apitest.Send(t, d.http, "GET", d.path("pods/running/log"), "")
			if test.want == "" && (a.Status != 200 || <-shown != parsed.Subject.CommonName) ||
				test.want != "" && (a.Status != 500 || !strings.Contains(a.Message(), test.want)) {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			a = apitest.Send(t, d.http, "GET", d.path("pods/running/log?insecureSkipTLSVerifyBackend=true"), "")
			if a.Status != 200 {
				t.Errorf("not verified: %d %s", a.Status, a.Body)
			} else {
				<-shown
			}
		})
	}
}

// command returns a kubelet's handler that simulates a command over SPDY. It writes what it reads from stdin, and
// the sizes of the terminal, to the outputs. It ends with the given status.
func (c *connectedCluster) command(status string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		protocol, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"})
		if err != nil {
			c.t.Errorf("handshake: %v", err)
			return
		}
		_ = protocol
		streams := make(chan httpstream.Stream, 5)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r,
			func(s httpstream.Stream, _ <-chan struct{}) error { streams <- s; return nil })
		if conn == nil {
			return
		}
		defer conn.Close()
		byType := map[string]httpstream.Stream{}
		want := 1
		for _, parameter := range []string{"input", "output", "error", "tty"} {
			if r.URL.Query().Get(parameter) == "1" {
				want++
			}
		}
		if r.URL.Query().Get("tty") == "1" && r.URL.Query().Get("error") == "1" {
			want-- // with a terminal, stdout and stderr are one stream
		}
		for range want {
			select {
			case s := <-streams:
				byType[s.Headers().Get(corev1.StreamType)] = s
			case <-time.After(connectionWait):
				c.t.Errorf("%d of %d streams", len(byType), want)
				return
			}
		}
		var in []byte
		if s := byType["resize"]; s != nil {
			var size struct{ Width, Height int }
			if err := json.NewDecoder(s).Decode(&size); err != nil {
				c.t.Errorf("size: %v", err)
			}
			in = fmt.Appendf(in, "%dx%d ", size.Width, size.Height)
		}
		if s := byType["stdin"]; s != nil {
			typed, err := io.ReadAll(s)
			if err != nil {
				c.t.Errorf("stdin: %v", err)
			}
			in = append(in, typed...)
		}
		for _, name := range []string{"stdout", "stderr"} {
			if s := byType[name]; s != nil {
				fmt.Fprintf(s, "%s:%s", name, in)
				_ = s.Close()
			}
		}
		fmt.Fprint(byType["error"], status)
		_ = byType["error"].Close()
		select {
		case <-conn.CloseChan():
		case <-time.After(connectionWait):
			c.t.Error("the connection was not closed after the command")
		}
	}
}

// webSocket opens a WebSocket with a token.
func (c *connectedCluster) webSocket(path, token string, protocols ...string) (*websocket.Conn, error) {
	target := strings.Replace(c.path(path), "https", "wss", 1)
	conf, err := websocket.NewConfig(target, c.URL())
	if err != nil {
		return nil, err
	}
	conf.Protocol = protocols
	conf.TlsConfig = c.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	conf.TlsConfig.NextProtos, conf.TlsConfig.Certificates = nil, nil
	conf.Header = http.Header{"Authorization": {"Bearer " + token}}
	ctx, cancel := context.WithTimeout(c.t.Context(), connectionWait)
	defer cancel()
	conn, err := conf.DialContext(ctx)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(connectionWait))
		conn.PayloadType = websocket.BinaryFrame
		c.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// channels reads the WebSocket of a remote command to its end and returns the text of each channel.
func channels(t *testing.T, conn *websocket.Conn) map[byte]string {
	t.Helper()
	out := map[byte]string{}
	for {
		var message []byte
		if err := websocket.Message.Receive(conn, &message); err != nil {
			if err != io.EOF {
				t.Errorf("reading: %v", err)
			}
			return out
		}
		out[message[0]] += string(message[1:])
	}
}

const (
	success = `{"metadata":{},"status":"Success"}`
	failure = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"x","reason":"NonZeroExitCode",` +
		`"details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`
)

// TestWebSocketsAreTranslated runs commands over WebSocket on a kubelet that speaks SPDY.
func TestWebSocketsAreTranslated(t *testing.T) {
	c := startCluster(t, nil)
	for path, want := range map[string]struct {
		status, uri string
		channels    map[byte]string
	}{
		"pods/running/exec?command=a&command=b%20c&stdin=1&stdout=1&stderr=true": {
			success, "/exec/default/running/c?command=a&command=b+c&error=1&input=1&output=1",
			map[byte]string{1: "stdout:typed", 2: "stderr:typed", 3: success},
		},
		"pods/running/attach?stdin=1&stdout=1&stderr=1&tty=1": {
			success, "/attach/default/running/c?error=1&input=1&output=1&tty=1",
			map[byte]string{1: "stdout:80x24 typed", 3: success},
		},
		"pods/running/exec?command=a&stdout=1": {
			failure, "/exec/default/running/c?command=a&output=1",
			map[byte]string{1: "stdout:", 3: `{"metadata":{},"status":"Failure","message":"command terminated with non-zero ` +
				`exit code: command terminated with exit code 7","reason":"NonZeroExitCode","details":{"causes":[` +
				`{"reason":"ExitCode","message":"7"}]}}`},
		},
		"pods/running/exec?command=a&stderr=1": {
			"nonsense", "/exec/default/running/c?command=a&error=1",
			map[byte]string{2: "stderr:", 3: `{"metadata":{},"status":"Failure","message":"Internal error occurred: error stream ` +
				`protocol error: invalid character 'o' in literal null (expecting 'u') in \"nonsense\"",` +
				`"reason":"InternalError","details":{"causes":[{"message":"error stream protocol error: invalid character 'o' in ` +
				`literal null (expecting 'u') in \"nonsense\""}]},"code":500}`},
		},
	} {
		c.on(c.command(want.status))
		conn, err := c.webSocket(path, "admintoken", "v5.channel.k8s.io", "v4.channel.k8s.io")
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got := conn.Config().Protocol; !slices.Equal(got, []string{"v5.channel.k8s.io"}) {
			t.Errorf("%s: protocol %q", path, got)
		}
		messages := []string{}
		if strings.Contains(path, "tty") {
			messages = append(messages, "\x04{\"Width\":80,\"Height\":24}")
		}
		if strings.Contains(path, "stdin") {
			messages = append(messages, "\x00typed", "\xff\x00")
		}
		for _, m := range messages {
			if _, err := conn.Write([]byte(m)); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		got := channels(t, conn)
		for channel := range got {
			if got[channel] == "" {
				delete(got, channel)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want.channels) {
			t.Errorf("%s:\n%q\nwant\n%q", path, got, want.channels)
		}
		r, _ := c.last()
		if r.URL.RequestURI() != want.uri || r.Method != "POST" || r.Header.Get("Upgrade") != "SPDY/3.1" ||
			r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s: the kubelet got %s %s %v", path, r.Method, r.URL.RequestURI(), r.Header)
		}
	}
	c.on(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "go away", http.StatusForbidden) })
	conn, err := c.webSocket("pods/running/exec?command=a&stdout=1", "admintoken", "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if got := channels(t, conn); !strings.Contains(got[3], `unable to upgrade connection: go away`) {
		t.Errorf("refused: %q", got)
	}
	body := apitest.Send(t, c.http, "GET", c.URL()+"/metrics", "").Body
	for _, line := range []string{
		`apiserver_stream_translator_requests_total{code="200"} 3`,
		`apiserver_stream_translator_requests_total{code="500"} 2`,
		`apiserver_websocket_streaming_requests_total{proxy_type="translated_at_apiserver",subresource="exec"} 4`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
}

// TestACommandEndsWithItsClient closes the WebSocket of a command that sends no output.
func TestACommandEndsWithItsClient(t *testing.T) {
	c := startCluster(t, nil)
	opened, ended := make(chan struct{}), make(chan struct{})
	c.on(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
			t.Error(err)
			return
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, httpstream.NoOpNewStreamHandler)
		close(opened)
		<-conn.CloseChan()
		close(ended)
	})
	conn, err := c.webSocket("pods/running/exec?command=sleep&stdout=1", "admintoken", "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	var message []byte
	if err := websocket.Message.Receive(conn, &message); err != nil { // the connection is open
		t.Fatal(err)
	}
	select {
	case <-opened:
	case <-time.After(connectionWait):
		t.Fatal("the kubelet is not asked")
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(connectionWait):
		t.Error("the connection to the kubelet is open although the client is gone")
	}
}

// spdyClient opens a SPDY connection through the server.
func (c *connectedCluster) spdyClient(path string) (httpstream.Connection, *http.Response) {
	c.t.Helper()
	conf := c.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	conf.NextProtos = nil
	target, err := url.Parse(c.path(path))
	if err != nil {
		c.t.Fatal(err)
	}
	conn, err := (&tls.Dialer{Config: conf}).DialContext(c.t.Context(), "tcp", target.Host)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(connectionWait)); err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), "POST", c.path(path), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io", "portforward.k8s.io"},
		"Authorization": {"Bearer admintoken"},
	}
	if err := r.Write(conn); err != nil {
		c.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, response
	}
	client, err := spdy.NewClientConnection(conn)
	if err != nil {
		c.t.Fatal(err)
	}
	return client, response
}

func TestSPDYIsForwarded(t *testing.T) {
	c := startCluster(t, nil)
	c.on(c.command(success))
	client, response := c.spdyClient("pods/running/exec?command=a&stdin=1&stdout=1")
	if client == nil {
		t.Fatalf("%s", response.Status)
	}
	streams := map[string]httpstream.Stream{}
	for _, name := range []string{"error", "stdin", "stdout"} {
		s, err := client.CreateStream(http.Header{corev1.StreamType: {name}})
		if err != nil {
			t.Fatal(err)
		}
		streams[name] = s
	}
	fmt.Fprint(streams["stdin"], "typed")
	_ = streams["stdin"].Close()
	for name, want := range map[string]string{"stdout": "stdout:typed", "error": success} {
		if got, err := io.ReadAll(streams[name]); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	_ = client.Close()
	for path, want := range map[string]string{
		"POST pods/waiting/exec?command=a":             "pod waiting does not have a host assigned",
		"GET pods/two/attach":                          "a container name must be specified for pod two, choose one of: [i c d]",
		"POST pods/waiting/portforward?ports=1&ports=": `cannot convert to []int32: strconv.ParseUint: parsing "": invalid syntax`,
		"POST pods/waiting/portforward":                "pod waiting does not have a host assigned",
		"POST pods/running/exec?command=a&stdout=1":    "Upgrade request required",
		"GET pods/running/exec?dryRun=All":             "dryRun is not supported",
	} {
		method, path, _ := strings.Cut(path, " ")
		if a := apitest.Send(t, c.http, method, c.path(path), ""); a.Status != 400 || a.Message() != want {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// TestPortsAreForwarded forwards a port over SPDY, and over SPDY inside of a WebSocket.
func TestPortsAreForwarded(t *testing.T) {
	c := startCluster(t, nil)
	c.on(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
			t.Error(err)
			return
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			go func() {
				_, _ = io.Copy(s, s)
				_ = s.Close()
			}()
			return nil
		})
		defer conn.Close()
		<-conn.CloseChan()
	})
	echo := func(name string, client httpstream.Connection) {
		s, err := client.CreateStream(http.Header{corev1.StreamType: {"data"}, "port": {"80"}})
		if err != nil {
			t.Fatal(err)
		}
		sent := strings.Repeat("0123456789", 10000)
		go func() {
			_, _ = io.WriteString(s, sent)
			_ = s.Close()
		}()
		if got, err := io.ReadAll(s); err != nil || string(got) != sent {
			t.Errorf("%s: %d bytes of %d came back, %v", name, len(got), len(sent), err)
		}
		_ = client.Close()
	}
	client, response := c.spdyClient("pods/running/portforward?ports=80,81")
	if client == nil {
		t.Fatal(response.Status)
	}
	echo("SPDY", client)
	r, _ := c.last()
	if got := r.URL.RequestURI(); got != "/portForward/default/running?port=80%2C81" {
		t.Errorf("the kubelet was asked %s", got)
	}
	conn, err := c.webSocket("pods/running/portforward", "admintoken", "SPDY/3.1+portforward.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.Config().Protocol; !slices.Equal(got, []string{"SPDY/3.1+portforward.k8s.io"}) {
		t.Errorf("protocol %q", got)
	}
	if client, err = spdy.NewClientConnection(conn); err != nil {
		t.Fatal(err)
	}
	echo("WebSocket", client)
	r, _ = c.last()
	if r.Method != "POST" || r.Header.Get("Upgrade") != "SPDY/3.1" || r.Header.Get("Sec-Websocket-Key") != "" {
		t.Errorf("the kubelet got %s %v", r.Method, r.Header)
	}
}

// TestKubeletsThatSpeakWebSocket forwards WebSockets unchanged to kubelets that declare it.
func TestKubeletsThatSpeakWebSocket(t *testing.T) {
	c := startCluster(t, nil)
	c.patchStatus("nodes/n1", `{"status":{"declaredFeatures":["ExtendWebSocketsToKubelet"]}}`)
	c.on(func(w http.ResponseWriter, r *http.Request) {
		websocket.Server{Handler: func(conn *websocket.Conn) {
			_, _ = io.WriteString(conn, "\x01hello")
		}, Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = c.Protocol[:1]
			return nil
		}}.ServeHTTP(w, r)
	})
	conn, err := c.webSocket("pods/running/exec?command=a&stdout=1", "admintoken", "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if got := channels(t, conn); got[1] != "hello" {
		t.Errorf("%q", got)
	}
	if r, _ := c.last(); r.Header.Get("Upgrade") != "websocket" {
		t.Errorf("the kubelet got %v", r.Header)
	}
}

// TestWebSocketsNeedThePermissionToCreate connects to pods by WebSocket as a user who may only get the
// subresource.
func TestWebSocketsNeedThePermissionToCreate(t *testing.T) {
	c := startCluster(t, nil)
	rbac := c.URL() + "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	role := func(verbs string) string {
		return `{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"r"},"rules":[{"apiGroups":[""],
			"resources":["pods/exec","pods/attach","pods/portforward"],"verbs":[` + verbs + `]}]}`
	}
	if a := apitest.Send(t, c.http, "POST", rbac+"roles", role(`"get"`)); a.Status != 201 {
		t.Fatal(a.Body)
	}
	if a := apitest.Send(t, c.http, "POST", rbac+"rolebindings", `{"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1",
		"metadata":{"name":"r"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dave"}]}`); a.Status != 201 {
		t.Fatal(a.Body)
	}
	plain := httpClient(t, c.Server, false)
	try := func(path string) apitest.Answer {
		return apitest.Send(t, plain, "GET", c.path(path), "", "Authorization", "Bearer davetoken")
	}
	for _, path := range []string{"pods/running/exec", "pods/running/attach", "pods/running/portforward"} {
		if a := try(path); a.Status != 403 || !strings.HasPrefix(a.Message(), `pods "running" is forbidden`) {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
		if _, err := c.webSocket(path+"?stdout=1", "davetoken", "v5.channel.k8s.io"); err == nil {
			t.Errorf("%s: a WebSocket was opened", path)
		}
	}
	if r, _ := c.last(); r != nil {
		t.Errorf("the kubelet got %s", r.URL)
	}
	if a := apitest.Send(t, c.http, "PUT", rbac+"roles/r", role(`"get","create"`)); a.Status != 200 {
		t.Fatal(a.Body)
	}
	wait.Seen(t, "the role with create is in effect", func() (bool, string) {
		a := try("pods/running/exec")
		return a.Message() == "Upgrade request required", a.Body
	})
}

// TestConnectionsAreAdmitted checks that admission webhooks and a policy are called for connections.
func TestConnectionsAreAdmitted(t *testing.T) {
	c := startCluster(t, nil)
	h := apitest.NewWebhooks(t)
	configure := func(kind, name string) {
		configuration := strings.Replace(h.Configuration(kind, name, "/"+name, ""), `["configmaps","configmaps/*"]`,
			`["pods/exec","pods/proxy","nodes/proxy","pods/log"]`, 1)
		path := c.URL() + apitest.AdmissionPath + strings.ToLower(kind) + "s"
		if a := apitest.Send(t, c.http, "POST", path, configuration); a.Status != 201 {
			t.Fatal(a.Body)
		}
	}
	h.On("/change", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.SubResource != "exec" {
			return apitest.Allow(r)
		}
		return apitest.PatchWith(`[{"op":"add","path":"/command/-","value":"added"}]`)(r)
	})
	h.On("/judge", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if strings.Contains(string(r.Object.Raw), "forbidden") {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not this"}}
		}
		return apitest.Allow(r)
	})
	configure("MutatingWebhookConfiguration", "change")
	configure("ValidatingWebhookConfiguration", "judge")
	c.on(c.command(success))
	conn, err := c.webSocket("pods/running/exec?command=a&stdout=1", "admintoken", "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	channels(t, conn)
	if r, _ := c.last(); r.URL.RawQuery != "command=a&command=added&output=1" {
		t.Errorf("the kubelet was asked %s", r.URL)
	}
	asked := h.Requests("/judge")
	want := `{"apiVersion":"v1","command":["a","added"],"kind":"PodExecOptions","stdout":true}`
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	var object map[string]any
	if err := json.Unmarshal(asked[0].Object.Raw, &object); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if r := asked[0]; string(got) != want || r.Operation != "CONNECT" || r.Kind.Kind != "PodExecOptions" ||
		r.Resource.Resource != "pods" || r.SubResource != "exec" || r.Name != "running" || r.Namespace != "default" ||
		len(r.OldObject.Raw) > 0 || len(r.Options.Raw) > 0 || r.UserInfo.Username != "admin" {
		t.Errorf("asked %s about %+v", got, r)
	}
	c.on(nil)
	if a := apitest.Send(t, c.http, "GET", c.path("nodes/n1/proxy/forbidden"), ""); a.Status != 400 ||
		a.Message() != `admission webhook "judge.example.com" denied the request: not this` {
		t.Errorf("refused: %d %s", a.Status, a.Body)
	}
	if a := apitest.Send(t, c.http, "GET", c.path("nodes/n1/proxy/allowed"), ""); a.Status != 200 {
		t.Errorf("allowed: %d %s", a.Status, a.Body)
	}
	h.Requests("/judge")
	if a := apitest.Send(t, c.http, "GET", c.path("pods/running/log"), ""); a.Status != 200 || len(h.Requests("/judge")) != 0 {
		t.Errorf("a log was judged: %d", a.Status)
	}
}

// TestPoliciesJudgeConnections checks that a ValidatingAdmissionPolicy can refuse a remote command.
func TestPoliciesJudgeConnections(t *testing.T) {
	c := startCluster(t, nil)
	const group = "/apis/admissionregistration.k8s.io/v1/"
	for path, object := range map[string]string{
		"validatingadmissionpolicies": `{"kind":"ValidatingAdmissionPolicy","apiVersion":"admissionregistration.k8s.io/v1",
			"metadata":{"name":"no-shell"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],
			"operations":["CONNECT"],"resources":["pods/exec"]}]},
			"validations":[{"expression":"object.command[0] != 'sh'","message":"no shells"},
				{"expression":"request.operation == 'CONNECT' && object.kind == 'PodExecOptions' && oldObject == null"}]}}`,
		"validatingadmissionpolicybindings": `{"kind":"ValidatingAdmissionPolicyBinding",
			"apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"no-shell"},
			"spec":{"policyName":"no-shell","validationActions":["Deny"]}}`,
	} {
		if a := apitest.Send(t, c.http, "POST", c.URL()+group+path, object); a.Status != 201 {
			t.Fatal(a.Body)
		}
	}
	for query, want := range map[string]string{
		"command=sh&command=-c": `pods "running" is forbidden: ValidatingAdmissionPolicy 'no-shell' with binding 'no-shell' ` +
			`denied request: no shells`,
		"command=ls": "Upgrade request required",
	} {
		if a := apitest.Send(t, c.http, "POST", c.path("pods/running/exec?"+query), ""); a.Message() != want {
			t.Errorf("%s: %d %s", query, a.Status, a.Body)
		}
	}
}

// TestConnectionsEndWithTheServer stops the server while a command runs. The audit events of the command are then
// written.
func TestConnectionsEndWithTheServer(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	c := startCluster(t, func(conf *settings) {
		policy := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  resources:\n"+
			"  - group: ''\n    resources: [pods/exec]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		conf.Audit.PolicyFile, conf.Audit.Log.Path = policy, log
	})
	ended := make(chan struct{})
	c.on(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
			t.Error(err)
			return
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, httpstream.NoOpNewStreamHandler)
		<-conn.CloseChan()
		close(ended)
	})
	client, response := c.spdyClient("pods/running/exec?command=sleep&stdout=1")
	if client == nil {
		t.Fatal(response.Status)
	}
	stop(t, c.Server)
	select {
	case <-ended:
	case <-time.After(connectionWait):
		t.Error("the connection to the kubelet is open although the server has stopped")
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var stages []string
	for line := range strings.Lines(string(content)) {
		var e struct {
			Stage, Verb    string
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		stages = append(stages, fmt.Sprintf("%s %s %d", e.Stage, e.Verb, e.ResponseStatus.Code))
	}
	want := []string{"RequestReceived create 0", "ResponseStarted create 101", "ResponseComplete create 101"}
	if !slices.Equal(stages, want) {
		t.Errorf("audit events: %q, want %q", stages, want)
	}
}

// TestLargeBodiesAreForwarded sends and receives bodies larger than the limit for requests of the API itself.
func TestLargeBodiesAreForwarded(t *testing.T) {
	c := startCluster(t, nil)
	c.on(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body) // the client is there
	})
	body := strings.Repeat("0123456789abcdef", 8<<20/16)
	if a := apitest.Send(t, c.http, "POST", c.path("pods/running/proxy/x"), body); a.Status != 200 || a.Body != body {
		t.Errorf("%d, %d bytes of %d came back", a.Status, len(a.Body), len(body))
	}
}

// TestKubeletsAreReachedThroughTheProxy connects through the proxy of the network "cluster".
func TestKubeletsAreReachedThroughTheProxy(t *testing.T) {
	proxy, asked := fakeProxy(t)
	c := startCluster(t, func(conf *settings) {
		conf.Network.Connections.Dial = nil
		conf.Network.EgressConfigFile = egressThrough(t, "cluster", proxy)
	})
	for path, want := range map[string]string{
		"pods/running/log": "10.9.0.1:10250", "nodes/n1/proxy/": "10.9.0.1:10250", "pods/running/proxy/": "10.8.0.1:8080",
		"services/web:http/proxy/": "10.8.0.1:8080",
	} {
		a := apitest.Send(t, c.http, "GET", c.path(path), "")
		if a.Status < 500 || !strings.Contains(a.Message(), "code 403") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("%s: the proxy was asked for %s", path, got)
			}
		default:
			t.Errorf("%s: the proxy was not asked", path)
		}
	}
}
