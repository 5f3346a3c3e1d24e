package aggregator_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestExtensionServer forwards requests to an extension API server. The responses are those of kube-apiserver 1.36.
func TestExtensionServer(t *testing.T) {
	e := apitest.NewExtension(t)
	s := servertest.Start(t, servertest.Default())
	e.Register(s.Client)

	a := s.Send("GET", apitest.ExtensionVersion+"/a%2Fb?x=1", "", "X-Remote-User", "eve", "X-Remote-Group", "system:masters",
		"X-Remote-Group", "evil", "X-Remote-Extra-Key", "x", "X-Remote-Uid", "1")
	if want := "GET " + apitest.ExtensionVersion + "/a/b?x=1"; a.Status != http.StatusOK || a.Body != want {
		t.Errorf("%d %s, want %s", a.Status, a.Body, want)
	}
	got := e.Last.Load().Header
	if user, groups := got["X-Remote-User"], got["X-Remote-Group"]; fmt.Sprint(user, groups) !=
		"[kubernetes-admin] [system:masters system:authenticated]" || got["X-Remote-Extra-Key"] != nil ||
		got["X-Remote-Uid"] != nil || got["Authorization"] != nil || got["X-Forwarded-Proto"][0] != "https" {
		t.Errorf("headers %v", got)
	}
	if shown := e.Last.Load().TLS.PeerCertificates; len(shown) == 0 || shown[0].Subject.CommonName != "front-proxy-client" {
		t.Errorf("the certificates of the server are %v", shown)
	}
	a = s.Send("GET", apitest.ExtensionVersion+"/redirect", "")
	if a.Status != http.StatusBadGateway || a.Header.Get("Location") != "" ||
		a.Body != "the backend attempted to redirect this request, which is not permitted" {
		t.Errorf("a redirect is answered %d %s", a.Status, a.Body)
	}
	a = s.Send("GET", apitest.ExtensionVersion+"/hang?timeout=100ms", "")
	if a.Status != http.StatusGatewayTimeout {
		t.Errorf("a request that times out is answered %d %s", a.Status, a.Body)
	}
	if a = s.Send("GET", "/apis/agg.example.com/v2", ""); a.Status != http.StatusNotFound {
		t.Errorf("another version is answered %d", a.Status)
	}
}

// TestExtensionBodiesAreStreamed sends the second part of a body after it has received the first one back.
func TestExtensionBodiesAreStreamed(t *testing.T) {
	e := apitest.NewExtension(t)
	s := servertest.Start(t, servertest.Default())
	e.Register(s.Client)
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+apitest.ExtensionVersion+"/echo", in)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan *http.Response, 1)
	go func() {
		response, err := s.HTTP().Do(r)
		if err != nil {
			t.Error(err)
			close(answered)
			return
		}
		answered <- response
	}()
	const part, parts = 1 << 20, 8 // larger than a body that this server itself accepts
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
			case <-time.After(wait.Limit):
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
	e := apitest.NewExtension(t)
	s := servertest.Start(t, servertest.Default())
	e.Register(s.Client)
	config := s.HTTP().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait.Limit))
	_, err = fmt.Fprintf(conn, "GET %s/upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nhello\n",
		apitest.ExtensionVersion)
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
func condition(s *servertest.Server) string {
	body := s.Send("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.example.com", "").Body
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
	e := apitest.NewExtension(t)
	s := servertest.Start(t, servertest.Default())
	e.Register(s.Client)
	shows := func(path, accept, part string) func() bool {
		return func() bool { return strings.Contains(s.Send("GET", path, "", "Accept", accept).Body, part) }
	}
	wait.Until(t, "the condition", func() bool {
		return condition(s) == "{Available True Passed all checks passed}"
	})
	const widgets = `"versions":[{"version":"v1","resources":[{"resource":"widgets"`
	wait.Until(t, "the resources in discovery", shows("/apis", apitest.AggregatedDiscovery, widgets))
	wait.Until(t, "the OpenAPI document", shows("/openapi/v3", "*/*", `"/openapi/v3/apis/agg.example.com/v1?hash=AAA"`))
	if !shows("/openapi/v3/apis/agg.example.com/v1", "*/*", `"title":"extension"`)() {
		t.Error("the OpenAPI v3 document is not that of the extension API server")
	}
	if !shows("/openapi/v2", "*/*", `"/apis/agg.example.com/v1/widgets":{"get":{`)() ||
		!shows("/openapi/v2", "*/*", `"example.Widget":{}`)() {
		t.Error("the OpenAPI v2 document lacks the extension API server")
	}

	e.Broken.Store(true)
	// An answer with status 503 causes a check of the server.
	wait.Until(t, "the condition False", func() bool {
		s.Send("GET", apitest.ExtensionVersion+"/x", "")
		return strings.HasPrefix(condition(s), "{Available False FailedDiscoveryCheck failing or missing response from "+
			"https://127.0.0.1:"+e.Port+apitest.ExtensionVersion)
	})
	// The aggregator follows the condition, so a request may still reach the server just after the change.
	wait.Until(t, "the answer without the server", func() bool {
		a := s.Send("GET", apitest.ExtensionVersion+"/x", "")
		return a.Status == http.StatusServiceUnavailable && a.Body == "service unavailable\n" &&
			a.Header.Get("X-Apiservice-Failure") == "v1.agg.example.com; FailedDiscoveryCheck"
	})
	const stale = `"versions":[{"version":"v1","freshness":"Stale"}]`
	wait.Until(t, "the stale version in discovery", shows("/apis", apitest.AggregatedDiscovery, stale))
	if !shows("/metrics", "*/*", `aggregator_unavailable_apiservice{name="v1.agg.example.com"} 1`)() {
		t.Error("the metric does not say that the server is unavailable")
	}

	e.Broken.Store(false)
	wait.Until(t, "the condition True", func() bool {
		return condition(s) == "{Available True Passed all checks passed}"
	})
	wait.Until(t, "the resources in discovery again", shows("/apis", apitest.AggregatedDiscovery, widgets))

	s.Do("DELETE", "/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.example.com", "")
	if a := s.Send("GET", apitest.ExtensionVersion+"/x", ""); a.Status != http.StatusNotFound {
		t.Errorf("after the APIService was deleted: %d", a.Status)
	}
	if shows("/apis", "*/*", "agg.example.com")() {
		t.Error("the group is in discovery after the APIService was deleted")
	}
}

// TestDocumentsAreReadAgain checks that the documents of a server are read again after a change of its APIService,
// and soon after an error.
func TestDocumentsAreReadAgain(t *testing.T) {
	e := apitest.NewExtension(t)
	var document atomic.Value
	serve := func(resource string) {
		document.Store(strings.ReplaceAll(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
			{"metadata":{"name":"agg.example.com"},"versions":[{"version":"v1","freshness":"Current","resources":[
			{"resource":"NAME","scope":"Namespaced","responseKind":{"group":"agg.example.com","version":"v1","kind":"Widget"},
			"singularResource":"widget","verbs":["get"]}]}]}]}`, "NAME", resource))
	}
	e.Special = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/apis" {
			return false
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, _ = io.WriteString(w, document.Load().(string))
		return true
	}
	serve("widgets")
	s := servertest.Start(t, servertest.Default())
	e.Register(s.Client)
	shown := func(resource string) func() bool {
		return func() bool {
			body := s.Send("GET", "/apis", "", "Accept", apitest.AggregatedDiscovery).Body
			return strings.Contains(body, `{"resource":"`+resource+`"`)
		}
	}
	wait.Until(t, "the resources in discovery", shown("widgets"))
	change := func(minimum int) {
		s.Do("PATCH", "/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.example.com",
			fmt.Sprintf(`{"spec":{"groupPriorityMinimum":%d}}`, minimum), "Content-Type", "application/merge-patch+json")
	}
	serve("gadgets")
	change(17)
	wait.Until(t, "the other resources, after a change of the priority", shown("gadgets"))

	document.Store("no JSON")
	change(18)
	wait.Until(t, "the stale version", func() bool { return !shown("gadgets")() })
	serve("again")
	wait.Until(t, "the resources, after the document was no JSON", shown("again"))
}

// TestHangingExtensionServer sends as many requests as may be in flight to an extension API server that hangs.
// Other requests are served, and the next request to that server is refused.
func TestHangingExtensionServer(t *testing.T) {
	config := servertest.Default()
	config.Requests.MaxInFlight = 20
	e := apitest.NewExtension(t)
	s := servertest.Start(t, config)
	e.Register(s.Client)
	user := s.As("ann", "dev")
	s.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"dev"},"roleRef":{"kind":"ClusterRole",
		"name":"cluster-admin"},"subjects":[{"kind":"Group","name":"dev"}]}`)
	hang := func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+apitest.ExtensionVersion+"/hang", nil)
		if err != nil {
			return
		}
		r.Header = http.Header{"Impersonate-User": {"ann"}, "Impersonate-Group": {"dev"}}
		if response, err := s.HTTP().Do(r); err == nil {
			_ = response.Body.Close()
		}
	}
	wait.Until(t, "a refusal", func() bool {
		go hang() // one of many, some of which may be refused
		return user.Send("GET", apitest.ExtensionVersion+"/other?timeout=1s", "").Status == http.StatusTooManyRequests
	})
	user.Get("/api/v1/namespaces/default") // is not for the extension API server
}

// TestAvailabilityConditions changes the Service of an APIService and its endpoints. The conditions are those of
// kube-apiserver 1.36.
func TestAvailabilityConditions(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	const services, slices = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	expect := func(want string) {
		t.Helper()
		want = "{Available False " + want + "}"
		wait.Until(t, want, func() bool { return condition(s) == want })
	}
	s.Create("/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.agg.example.com"},
		"spec":{"group":"agg.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,
		"service":{"name":"extension","namespace":"default","port":8443}}}`)
	expect(`ServiceNotFound service/extension in "default" is not present`)
	s.Create(services, `{"metadata":{"name":"extension"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`)
	expect(`ServicePortError service/extension in "default" is not listening on port 8443`)
	s.Patch(services+"/extension", `{"spec":{"ports":[{"name":"https","port":8443}]}}`)
	expect(`EndpointsNotFound cannot find endpointslices for service/extension in "default"`)
	s.Create(slices, `{"metadata":{"name":"e1","labels":{"kubernetes.io/service-name":"extension"}},"addressType":"IPv4",
		"endpoints":[{"addresses":["192.0.2.1"]}],"ports":[{"name":"http","port":8443}]}`)
	const missing = `MissingEndpoints endpointslices for service/extension in "default" have no addresses with port name "https"`
	expect(missing)
	s.Patch(slices+"/e1", `{"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":false}}],
		"ports":[{"name":"https","port":8443}]}`)
	expect(missing)
	s.Patch(slices+"/e1", `{"endpoints":[{"addresses":["192.0.2.1"]}]}`)
	// By cluster IP the endpoints are not used.
	expect(`FailedDiscoveryCheck cannot route to service with ClusterIP "None"`)
	a := s.Send("GET", apitest.ExtensionVersion, "")
	if a.Status != http.StatusServiceUnavailable || a.Body != "service unavailable\n" ||
		a.Header.Get("X-Apiservice-Failure") == "" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
