package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// extensionAttacks are attacks by an extension API server, which an administrator has registered, and attacks that need
// one.
func extensionAttacks() []row {
	return []row{
		{
			// A new server starts some goroutines when it is used for the first time.
			name: "documents that are not read", row: "E1", fresh: true, run: unreadDocuments,
			limits: limits{cpu: 10 * time.Second, peak: 120 << 20, goroutines: 60},
		},
		{
			name: "documents of an extension that are not read", row: "E1", fresh: true, run: unreadExtensionDocuments,
			limits: limits{cpu: 12 * time.Second, peak: 300 << 20, kept: 16 << 20, goroutines: 60},
		},
		{
			name: "extension that hangs when objects are deleted", slow: true, row: "E2", fresh: true, run: hangingDeletions,
			rights: []right{{resources: "configmaps", verbs: "create"}},
			limits: limits{cpu: 12 * time.Second},
		},
		{
			name: "extension that hangs", row: "E2", fresh: true, run: hangingExtension,
			rights: []right{{resources: "configmaps", verbs: "create"}},
			limits: limits{cpu: 12 * time.Second},
		},
		{
			name: "watch event without end", row: "E3", fresh: true, run: endlessEvent,
			limits: limits{cpu: 10 * time.Second, peak: 96 << 20},
		},
		{
			name: "list without end", row: "E3", fresh: true, run: endlessList,
			limits: limits{cpu: 10 * time.Second},
		},
		{
			name: "object without end in a list", row: "E3", fresh: true, run: endlessObject,
			limits: limits{cpu: 10 * time.Second, peak: 96 << 20},
		},
		{
			name: "OpenAPI of an extension that is no OpenAPI", row: "E4", fresh: true, run: hostileDefinitions,
			limits: limits{cpu: 12 * time.Second, peak: 256 << 20},
		},
	}
}

// extension is an extension API server in the process of the test. It serves namespaced objects of the kind Foo in
// evil.io/v1.
type extension struct {
	*httptest.Server
	// objects serves everything below /apis/evil.io/v1/.
	objects http.HandlerFunc
	// documents are what it serves at other paths, beside the defaults.
	documents map[string]string
	// ended is closed when the attack ends; requests that hang end then.
	ended chan struct{}
}

const evilVersion = "/apis/evil.io/v1"

// serveExtension starts an extension API server and registers it.
func serveExtension(a *attack, objects http.HandlerFunc, documents map[string]string) *extension {
	a.Helper()
	e := &extension{objects: objects, documents: documents, ended: make(chan struct{})}
	e.Server = httptest.NewUnstartedServer(e)
	e.EnableHTTP2 = true
	e.StartTLS()
	a.atEnd(func() {
		close(e.ended)
		e.CloseClientConnections()
		e.Close()
	})
	_, port, err := net.SplitHostPort(e.Listener.Addr().String())
	if err != nil {
		a.Fatal(err)
	}
	a.create(a.path("services"), map[string]any{
		"metadata": map[string]any{"name": "evil"},
		"spec":     map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"},
	})
	a.create("/apis/apiregistration.k8s.io/v1/apiservices", map[string]any{
		"metadata": map[string]any{"name": "v1.evil.io"},
		"spec": map[string]any{
			"group": "evil.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"name": "evil", "namespace": a.namespace, "port": json.Number(port)},
		},
	})
	wait.NoError(a, "the extension API server in discovery", func() error {
		got := a.admin.get("/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if !strings.Contains(string(got.body), `"resource":"foos"`) {
			return fmt.Errorf("%d %s", got.status, shorten(string(got.body)))
		}
		return nil
	})
	return e
}

// ServeHTTP implements http.Handler.
func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if text, ok := e.documents[r.URL.Path]; ok {
		_, _ = io.WriteString(w, text)
		return
	}
	switch {
	case r.URL.Path == "/apis":
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":
			{"name":"evil.io"},"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"foos",
			"scope":"Namespaced","responseKind":{"group":"evil.io","version":"v1","kind":"Foo"},"singularResource":"foo",
			"verbs":["get","list","watch","delete","deletecollection","patch"]}]}]}]}`)
	case r.URL.Path == evilVersion:
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"evil.io/v1","resources":[]}`)
	case strings.HasPrefix(r.URL.Path, evilVersion+"/"):
		e.objects(w, r)
	default:
		http.NotFound(w, r)
	}
}

// hang waits until the client has gone or the attack has ended.
func (e *extension) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-e.ended:
	}
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// emptyList is a list of no objects.
const emptyList = `{"kind":"FooList","apiVersion":"evil.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`

// lists answers a list, and a watch without any event.
func (e *extension) lists(w http.ResponseWriter, r *http.Request, text string) {
	if !isWatch(r) {
		_, _ = io.WriteString(w, text)
		return
	}
	w.(http.Flusher).Flush()
	e.hang(r)
}

// unreadDocuments requests documents without gzip, and reads nothing of them.
func unreadDocuments(a *attack) {
	counts := map[string]int{}
	for range 4 {
		a.unread(counts, http.MethodGet, "/openapi/v2", "")
	}
	a.unread(counts, http.MethodGet, "/openapi/v3/api/v1", "")
	a.unread(counts, http.MethodGet, "/apis?pretty=1", "", "accept",
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if len(counts) != 1 || counts["200"] == 0 {
		a.Errorf("the answers by status: %v", counts)
	}
	a.othersRead()
}

// unreadExtensionDocuments does that with a document of 31 MB. Its bytes are not for the cache.
func unreadExtensionDocuments(a *attack) {
	const size = 31 << 20
	document := `{"openapi":"3.0.0","info":{"title":"` + strings.Repeat("x", size) + `","version":"1"},"paths":{}}`
	serveExtension(a, http.NotFound, map[string]string{
		"/openapi/v3":                 `{"paths":{"apis/evil.io/v1":{"serverRelativeURL":"/openapi/v3/apis/evil.io/v1?hash=A"}}}`,
		"/openapi/v3/apis/evil.io/v1": document,
	})
	path := "/openapi/v3/apis/evil.io/v1"
	wait.NoError(a, "the document", func() error {
		if got := a.admin.get(path, "accept-encoding", "gzip"); got.status != http.StatusOK {
			return fmt.Errorf("%d", got.status)
		}
		return nil
	})
	counts := map[string]int{}
	a.unread(counts, http.MethodGet, path, "")
	if counts["200"] == 0 {
		a.Errorf("the answers by status: %v", counts)
	}
	a.othersRead()
}

// collected creates a ConfigMap with an owner that does not exist, and waits until it was deleted.
func (a *attack) collected(name string) {
	a.Helper()
	a.create(a.path("configmaps"), owned(name, "v1", "ConfigMap"))
	wait.NoError(a, "an object without its owner to be deleted", func() error {
		if got := a.admin.get(a.path("configmaps/" + name)); got.status != http.StatusNotFound {
			return fmt.Errorf("%d", got.status)
		}
		return nil
	})
}

// owned returns a ConfigMap with an owner of some kind.
func owned(name, version, kind string) map[string]any {
	o := configMap(name, 10)
	o["metadata"].(map[string]any)["ownerReferences"] = []any{
		map[string]any{"apiVersion": version, "kind": kind, "name": "owner-of-" + name, "uid": "uid-of-" + name},
	}
	return o
}

// namespaceObject returns a Namespace.
func namespaceObject(name string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name}}
}

// gone waits until a namespace does not exist any more.
func (a *attack) gone(name string) {
	a.Helper()
	wait.NoError(a, "the deletion of the namespace "+name, func() error {
		if got := a.admin.get("/api/v1/namespaces/" + name); got.status != http.StatusNotFound {
			return fmt.Errorf("%d %s", got.status, shorten(string(got.body)))
		}
		return nil
	})
}

// failing waits until a namespace says that its content could not be deleted.
func (a *attack) failing(name string) {
	a.Helper()
	wait.NoError(a, "the condition of the namespace "+name, func() error {
		got := a.admin.get("/api/v1/namespaces/" + name)
		var n struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := json.Unmarshal(got.body, &n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "NamespaceDeletionContentFailure" && c.Status == "True" &&
				strings.Contains(c.Message, "extension API server") {
				return nil
			}
		}
		return fmt.Errorf("%v", n.Status.Conditions)
	})
}

// hangingDeletions deletes namespaces with objects of an extension API server that never answers deletions. The
// namespaces must say so, and those without such objects must go.
func hangingDeletions(a *attack) {
	const stuck = 12
	var e *extension
	e = serveExtension(a, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			e.hang(r)
		case strings.Contains(r.URL.Path, "/namespaces/stuck-"):
			e.lists(w, r, strings.Replace(emptyList, "[]", `[{"metadata":{"name":"a","uid":"a"}}]`, 1))
		default:
			e.lists(w, r, emptyList)
		}
	}, nil)
	for i := range stuck {
		name := fmt.Sprintf("stuck-%d", i)
		a.create("/api/v1/namespaces", namespaceObject(name))
		a.admin.send(http.MethodDelete, "/api/v1/namespaces/"+name, "", nil).want(a, http.StatusOK)
	}
	a.create("/api/v1/namespaces", namespaceObject("free"))
	a.admin.send(http.MethodDelete, "/api/v1/namespaces/free", "", nil).want(a, http.StatusOK)
	a.gone("free")
	a.collected("other")
	for i := range stuck {
		a.failing(fmt.Sprintf("stuck-%d", i))
	}
}

// hangingExtension creates objects whose owners are in an extension API server that answers nothing, and deletes
// namespaces. Other objects must be collected, and the namespaces must say what they wait for.
func hangingExtension(a *attack) {
	const dependents, namespaces = 30, 12
	var e *extension
	e = serveExtension(a, func(_ http.ResponseWriter, r *http.Request) { e.hang(r) }, nil)
	for i := range dependents {
		body := encode(owned(fmt.Sprintf("dependent-%d", i), "evil.io/v1", "Foo"))
		a.user.send(http.MethodPost, a.path("configmaps"), jsonType, body).want(a, http.StatusCreated)
	}
	for i := range namespaces {
		name := fmt.Sprintf("stuck-%d", i)
		a.create("/api/v1/namespaces", namespaceObject(name))
		a.admin.send(http.MethodDelete, "/api/v1/namespaces/"+name, "", nil).want(a, http.StatusOK)
	}
	a.collected("other")
	for i := range namespaces {
		a.failing(fmt.Sprintf("stuck-%d", i))
	}
}

// flood writes the same bytes over and over until the client has gone or most are sent. It returns the number of bytes.
func flood(w io.Writer, most int64) (n int64) {
	part := []byte(strings.Repeat("x", 1<<20))
	for n < most {
		written, err := w.Write(part)
		n += int64(written)
		if err != nil {
			return n
		}
	}
	return n
}

const (
	// floodBytes is what an endless answer has, and floodTaken what a server may take of it, with what is on its way.
	floodBytes, floodTaken = 600 << 20, 64 << 20
)

// awaitMonitors has the garbage collector follow the resources of the extension API server without delay: it looks at
// them when definitions have changed.
func awaitMonitors(a *attack) { define(a, "Notice", `{"type":"object"}`) }

// endlessEvent sends an event of a watch that does not end.
func endlessEvent(a *attack) {
	taken := make(chan int64, 100)
	var e *extension
	e = serveExtension(a, func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			e.lists(w, r, emptyList)
			return
		}
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"`)
		select {
		case taken <- flood(w, floodBytes):
		default:
		}
	}, nil)
	awaitMonitors(a)
	a.notTaken(taken)
}

// endlessObject sends an object in a list that does not end.
func endlessObject(a *attack) {
	taken := make(chan int64, 100)
	serveExtension(a, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"metadata":{},"items":[{"metadata":{"name":"`)
		select {
		case taken <- flood(w, floodBytes):
		default:
		}
	}, nil)
	awaitMonitors(a)
	a.notTaken(taken)
}

// notTaken waits for the first endless answer to end, and checks how much the server has taken of it.
func (a *attack) notTaken(taken <-chan int64) {
	a.Helper()
	select {
	case n := <-taken:
		if n > floodTaken {
			a.Errorf("the server took %.1f MiB of one object", mib(n))
		}
	case <-time.After(patience):
		a.Errorf("waited %v for the end of an answer", patience)
	}
	a.collected("other")
}

// endlessList has a continue token in each page, which leads back to an earlier page.
func endlessList(a *attack) {
	var mu sync.Mutex // guards pages
	pages := 0        // of the present list
	lists := make(chan int, 100)
	var e *extension
	e = serveExtension(a, func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			e.lists(w, r, emptyList)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		token := r.URL.Query().Get("continue")
		if token == "" && pages > 0 {
			select {
			case lists <- pages:
			default:
			}
			pages = 0
		}
		pages++
		next := map[string]string{"": "a", "a": "b", "b": "c", "c": "a"}[token]
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1","continue":%q},"items":[{"metadata":{"name":%[1]q}}]}`, next)
	}, nil)
	awaitMonitors(a)
	select {
	case n := <-lists:
		if n > 4 {
			a.Errorf("%d pages were read of a list of three", n)
		}
	case <-time.After(patience):
		mu.Lock()
		a.Errorf("a list of three pages has not ended after %v and %d pages", patience, pages)
		mu.Unlock()
	}
	a.collected("other")
}

// hostileDefinitions serves an OpenAPI document with values that are no schemas, and with a good one.
func hostileDefinitions(a *attack) {
	deep := strings.Repeat(`{"properties":{"a":`, 3000) + "{}" + strings.Repeat("}}", 3000)
	document := `{"swagger":"2.0","info":{"title":"t","version":"1"},"paths":{
		"/apis/evil.io/v1/foos":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/x.Good"}}}}},
		"/apis/evil.io/v1/bad":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/x.evil"}}}}},
		"/apis/evil.io/v1/deep":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/x.deep"}}}}},
		"/apis/evil.io/v1/five":5},
		"definitions":{"x.evil":5,"x.deep":` + deep + `,"x.Good":{"type":"object","description":"it is good"}}}`
	serveExtension(a, http.NotFound, map[string]string{
		"/openapi/v3":                 `{"paths":{"apis/evil.io/v1":{"serverRelativeURL":"/openapi/v3/apis/evil.io/v1?hash=A"}}}`,
		"/openapi/v3/apis/evil.io/v1": `{"openapi":"3.0.0","info":{"title":"t","version":"1"},"paths":{}}`,
		"/openapi/v2":                 document,
	})
	var text []byte
	wait.NoError(a, "the part of the extension in /openapi/v2", func() error {
		got := a.user.get("/openapi/v2")
		text = got.body
		if got.status != http.StatusOK || !strings.Contains(string(text), "it is good") {
			return fmt.Errorf("%d, %d bytes", got.status, len(text))
		}
		return nil
	})
	if strings.Contains(string(text), "x.evil") || strings.Contains(string(text), `"/apis/evil.io/v1/five"`) ||
		strings.Contains(string(text), "x.deep") {
		a.Error("values that are no schemas reach everybody")
	}
	const protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	a.user.get("/openapi/v2", "Accept", protobuf).want(a, http.StatusOK)
}
