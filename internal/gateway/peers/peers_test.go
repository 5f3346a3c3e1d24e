package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// world is a Peers with servers that the test controls.
type world struct {
	t     *testing.T
	store storage.Store
	set   *certs.Set
	peers *Peers

	mu       sync.Mutex // guards what follows
	declared map[schema.GroupVersion]bool
	changed  bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: newStore(t)}
	kept := cache.New(cache.Options{Store: w.store})
	t.Cleanup(kept.Close)
	reg, err := registry.New(resource.Kinds(features.Gates{}), w.store, kept, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	w.set, err = certs.Ensure(certs.Options{
		Serving: true, Admin: true, FrontProxy: true, Names: []string{"kubernetes.default.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.set.CA)
	w.peers, err = New(t.Context(), Options{
		Server: "me", Store: w.store, Leases: reg.Resource(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}),
		Declared: w.declare, Log: slog.New(slog.DiscardHandler),
		Certificate: func() (*tls.Certificate, error) { pair, err := w.set.FrontProxy.TLS(); return &pair, err },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.peers.SetRoots(roots)
	return w
}

func (w *world) declare() (map[schema.GroupVersion]bool, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = false
	return w.declared, changed
}

// run runs the Peers until the test ends.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.peers.Run(ctx); close(done) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

// lease tells the Peers of the Lease of a server. An empty holder means that the Lease is gone.
func (w *world) lease(namespace, name, holder string) {
	change := informer.Change{Namespace: namespace, Name: name}
	if holder != "" {
		change.Object = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{leaseLabel: leaseValue}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	w.peers.apply([]informer.Change{change})
}

// fake is a peer.
type fake struct {
	*httptest.Server
	reads atomic.Int64 // of /apis
	// groups are the groups of the peer, as text of groupsOf. With "" it answers an error, with "hang" it does not
	// answer.
	groups atomic.Pointer[string]
	last   atomic.Pointer[http.Request]
	ending chan struct{}
}

// serve starts a peer and writes its record.
func (w *world) serve(name, groups string) *fake {
	w.t.Helper()
	f := &fake{ending: make(chan struct{})}
	f.groups.Store(&groups)
	f.Server = httptest.NewUnstartedServer(f)
	pair, err := w.set.Serving.TLS()
	if err != nil {
		w.t.Fatal(err)
	}
	f.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	f.StartTLS()
	w.t.Cleanup(func() { close(f.ending); f.Close() })
	_, port, _ := net.SplitHostPort(f.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	record := &Record{Store: w.store, Server: name, Host: "127.0.0.1", Port: n}
	if err := record.write(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	groups := *f.groups.Load()
	list := apidiscovery.APIGroupDiscoveryList{}
	switch {
	case groups == "hang":
		select {
		case <-r.Context().Done():
		case <-f.ending:
		}
		return
	case r.URL.Path == "/apis":
		f.reads.Add(1)
		if groups == "" {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		list.Items = groupsOf(groups)
	case r.URL.Path == "/api":
		list.Items = groupsOf("/v1:pods")
	default:
		f.last.Store(r.Clone(context.Background()))
		_, _ = w.Write([]byte(r.RequestURI))
		return
	}
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	_ = json.NewEncoder(w).Encode(list)
}

func (f *fake) serves(groups string) { f.groups.Store(&groups) }

func (w *world) serving(resource string) string {
	return strings.Join(w.peers.current.Load().serving(gvr(resource)), " ")
}

// request sends a request through the Peers; it returns nil if no peer is asked.
func (w *world) request(path, resource string, header http.Header) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = "192.0.2.7:1234"
	for name, values := range header {
		r.Header[name] = values
	}
	parts := strings.Split(resource, "/")
	ctx := request.WithInfo(r.Context(), &request.Info{
		Path: path, Verb: "get", Group: parts[0], Version: parts[1], Resource: parts[2], AsksResource: true,
	})
	ctx = request.WithUser(ctx, &request.User{Name: "jane", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"a/b": {"c"}}})
	r = r.WithContext(ctx)
	handler := w.peers.Find(r)
	if handler == nil {
		return nil
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

func TestPeersFollowLeases(t *testing.T) {
	w := newWorld(t)
	a := w.serve("a", "x/v1:r")
	w.serve("b", "x/v1:r;y/v1:s")
	others := []*fake{w.serve("c", "x/v1:r"), w.serve("me", "x/v1:r")} // neither is a peer
	w.run()
	w.lease("default", "c", "c_1") // not where servers have their Leases
	w.lease("kube-system", "me", "me_1")
	w.lease("kube-system", "a", "a_1")
	w.lease("kube-system", "b", "b_1")
	wait.Until(t, "both peers are known", func() bool { return w.serving("x/v1/r") == "a b" && w.serving("y/v1/s") == "b" })
	if got := w.serving("/v1/pods"); got != "a b" {
		t.Errorf("the core group: %q", got)
	}
	for _, f := range others {
		if f.reads.Load() > 0 {
			t.Error("a server that is no peer was asked")
		}
	}
	changes := w.peers.Changes()

	w.lease("kube-system", "a", "a_1") // renewed
	w.lease("kube-system", "b", "")
	wait.Until(t, "a peer has gone", func() bool { return w.serving("y/v1/s") == "" })
	if a.reads.Load() != 1 || w.peers.Changes() == changes {
		t.Errorf("%d reads, %d changes", a.reads.Load(), w.peers.Changes()-changes)
	}

	// Another run of the same server: the old document counts until the new one is there.
	a.serves("")
	w.lease("kube-system", "a", "a_2")
	wait.Until(t, "the documents are read again in vain", func() bool { return a.reads.Load() >= 3 })
	if got := w.serving("x/v1/r"); got != "a" {
		t.Errorf("while the documents cannot be read: %q", got)
	}
	a.serves("z/v1:t")
	wait.Until(t, "the new documents", func() bool { return w.serving("x/v1/r") == "" && w.serving("z/v1/t") == "a" })
}

// TestHangingPeer checks that a peer that does not answer delays nobody else.
func TestHangingPeer(t *testing.T) {
	w := newWorld(t)
	w.serve("a", "hang")
	w.serve("b", "x/v1:r")
	w.peers.waiting = map[string]bool{"a": true, "b": true}
	w.run()
	w.lease("kube-system", "a", "a_1")
	w.lease("kube-system", "b", "b_1")
	wait.Until(t, "the other peer is known", func() bool { return w.serving("x/v1/r") == "b" })
	if w.peers.Ready(t.Context()) == nil {
		t.Error("it is ready before the first peer was asked")
	}
	w.lease("kube-system", "a", "")
	wait.Until(t, "it is ready without the peer that has gone", func() bool { return w.peers.Ready(t.Context()) == nil })
}

// TestDeclaredVersions checks that versions which objects in the store declare are not looked for at peers, and
// that the documents are read again after such an object is deleted.
func TestDeclaredVersions(t *testing.T) {
	w := newWorld(t)
	a := w.serve("a", "x/v1:r;custom/v1:c")
	set := func(texts ...string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.declared, w.changed = versionsOf(texts...), true
	}
	set("custom/v1")
	w.lease("kube-system", "a", "a_1")
	ctx, began := t.Context(), time.Now()
	w.peers.work(ctx, began)
	wait.Until(t, "the peer is known", func() bool { return w.serving("x/v1/r") == "a" })
	if got := w.serving("custom/v1/c"); got != "" {
		t.Errorf("a declared version is looked for at %q", got)
	}
	set()
	w.peers.work(ctx, began)
	if got := w.serving("custom/v1/c"); got != "" {
		t.Errorf("a version that was just removed is looked for at %q", got)
	}
	a.serves("x/v1:r;custom/v1:d")
	reads := a.reads.Load()
	w.peers.work(ctx, began.Add(2*grace))
	if got := w.serving("custom/v1/c"); got != "" {
		t.Errorf("an old document counts: %q", got)
	}
	wait.Until(t, "the documents are read again", func() bool { return a.reads.Load() > reads && w.serving("custom/v1/d") == "a" })
	w.peers.tasks.Wait()
}

func TestForward(t *testing.T) {
	w := newWorld(t)
	a := w.serve("a", "x/v1:r")
	w.run()
	w.lease("kube-system", "a", "a_1")
	wait.Until(t, "the peer is known", func() bool { return w.serving("x/v1/r") == "a" })
	const path = "/apis/x/v1/namespaces/n/r?labelSelector=a%3Db"
	got := w.request(path, "x/v1/r", http.Header{
		"Authorization": {"Bearer secret"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-D": {"e"}, "Impersonate-User": {"root"},
		"Audit-Id": {"id-1"}, "Accept-Encoding": {"gzip"},
	})
	if got == nil || got.Code != http.StatusOK || got.Body.String() != path {
		t.Fatalf("%+v", got)
	}
	sent := a.last.Load()
	for name, want := range map[string]string{
		"X-Remote-User": "jane", "X-Remote-Uid": "7", "X-Remote-Group": "dev", "X-Remote-Extra-A%2fb": "c",
		"X-Kubernetes-Peer-Proxied": "true", "Audit-Id": "id-1", "Accept-Encoding": "gzip", "X-Forwarded-For": "192.0.2.7",
		"X-Forwarded-Proto": "https", "Authorization": "", "X-Remote-Extra-D": "", "Impersonate-User": "",
	} {
		if value := strings.Join(sent.Header.Values(name), ","); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	if shown := sent.TLS.PeerCertificates; len(shown) == 0 || shown[0].Subject.CommonName != certs.FrontProxyName {
		t.Error("the certificate of the front proxy is missing")
	}
	for name, r := range map[string]*httptest.ResponseRecorder{
		"another resource": w.request("/apis/x/v1/s", "x/v1/s", nil),
		"no resource":      w.request("/apis/x/v1", "x/v1/", nil),
		"forwarded before": w.request(path, "x/v1/r", http.Header{Header: {"true"}}),
	} {
		if r != nil {
			t.Errorf("%s: it is forwarded: %d", name, r.Code)
		}
	}
	if r := w.request(path, "x/v1/r", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}); r.Code != http.StatusBadRequest {
		t.Errorf("an upgrade to HTTP/2: %d", r.Code)
	}
	if r := w.request("/apis/x/v1/r/a/../../../../v2/s", "x/v1/r", nil); r.Code != http.StatusBadRequest {
		t.Errorf("a path that leaves the resource: %d", r.Code)
	}
}

// TestForwardUnderConstraint checks that a request that may need a further permission is not forwarded, because a
// peer does not know the constraint of an impersonation.
func TestForwardUnderConstraint(t *testing.T) {
	w := newWorld(t)
	a := w.serve("a", "x/v1:r")
	w.run()
	w.lease("kube-system", "a", "a_1")
	wait.Until(t, "the peer is known", func() bool { return w.serving("x/v1/r") == "a" })
	for _, c := range []struct {
		verb, subresource, query string
		lifted                   bool
		want                     int
	}{
		{"get", "", "", false, http.StatusOK},
		{"watch", "", "?watch=true", false, http.StatusOK},
		{"get", "status", "", false, http.StatusOK},
		{"get", "", "?asOf=7", false, http.StatusForbidden},
		{"list", "", "?limit=5&asOf=1h", false, http.StatusForbidden},
		{"get", "history", "", false, http.StatusForbidden},
		{"get", "exec", "", false, http.StatusForbidden},
		{"update", "", "", false, http.StatusForbidden},
		{"patch", "", "", false, http.StatusForbidden},
		{"delete", "", "", false, http.StatusForbidden},
		{"get", "", "?asOf=7", true, http.StatusOK},
		{"update", "", "", true, http.StatusOK},
	} {
		a.last.Store(nil)
		r := httptest.NewRequest(http.MethodGet, "/apis/x/v1/r/a"+c.query, nil)
		ctx := request.WithInfo(r.Context(), &request.Info{
			Verb: c.verb, Group: "x", Version: "v1", Resource: "r", Name: "a", Subresource: c.subresource, AsksResource: true,
		})
		ctx = request.WithUser(ctx, &request.User{Name: "jane"})
		ctx = authz.WithConstraint(ctx, &authz.Constraint{User: "jane", Lifted: func(context.Context) bool { return c.lifted }})
		recorder := httptest.NewRecorder()
		r = r.WithContext(ctx)
		w.peers.Find(r).ServeHTTP(recorder, r)
		if recorder.Code != c.want || (a.last.Load() != nil) != (c.want == http.StatusOK) {
			t.Errorf("%+v: %d %s", c, recorder.Code, recorder.Body)
		}
	}
}

// TestSetRoots checks that the next request uses new authorities, even if a connection is open.
func TestSetRoots(t *testing.T) {
	w := newWorld(t)
	w.serve("a", "x/v1:r")
	w.run()
	w.lease("kube-system", "a", "a_1")
	wait.Until(t, "the peer is known", func() bool { return w.serving("x/v1/r") == "a" })
	if got := w.request("/apis/x/v1/r", "x/v1/r", nil); got.Code != http.StatusOK {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	w.peers.SetRoots(x509.NewCertPool())
	if got := w.request("/apis/x/v1/r", "x/v1/r", nil); got.Code != http.StatusServiceUnavailable ||
		!strings.Contains(got.Body.String(), "unknown authority") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

func TestRetryAfter(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		0: firstRetry, 1: 2 * firstRetry, 3: 8 * firstRetry, 8: 25600 * time.Millisecond, 9: lastRetry, 1000: lastRetry,
	} {
		if got := retryAfter(failures); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}
