package controllertest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// liar is an extension API server with one resource. Its first watch of this resource sends false events, about
// objects of other servers.
type liar struct {
	*apitest.Extension
	events chan string // the events that the watch sends
	// deleted is closed when an object is deleted. By then the collector has read all earlier events.
	deleted chan struct{}
	once    sync.Once
	done    chan struct{} // closed when the test ends; then watches end
}

func newLiar(t *testing.T) *liar {
	l := &liar{
		Extension: apitest.NewExtension(t), events: make(chan string, 16), deleted: make(chan struct{}), done: make(chan struct{}),
	}
	l.Special = l.serve
	t.Cleanup(func() { close(l.done) }) // runs before the extension is closed, which waits for its watches
	return l
}

const (
	fooKind  = `"apiVersion":"agg.example.com/v1","kind":"Foo"`
	fooGroup = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"agg.example.com"},
		"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"foos","scope":"Namespaced",
		"responseKind":{"group":"agg.example.com","version":"v1","kind":"Foo"},"singularResource":"foo",
		"verbs":["delete","get","list","watch"]}]}]}]}`
)

func (l *liar) serve(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.URL.Path == "/apis":
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, _ = io.WriteString(w, fooGroup)
	case r.Method == http.MethodDelete:
		l.once.Do(func() { close(l.deleted) })
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case !strings.HasPrefix(r.URL.Path, apitest.ExtensionVersion+"/"):
		return false
	case r.URL.Query().Get("watch") == "true":
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case event := <-l.events:
				_, _ = io.WriteString(w, event+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return true
			case <-l.done:
				return true
			}
		}
	case strings.HasSuffix(r.URL.Path, "/foos"):
		_, _ = io.WriteString(w, `{"kind":"FooList","apiVersion":"agg.example.com/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	default:
		http.Error(w, "no", http.StatusInternalServerError)
	}
	return true
}

// TestExtensionsCollectNothingOfOthers: an extension API server sends deletions and states of objects of other
// servers in its watches. The collector must not delete, orphan or change those objects.
func TestExtensionsCollectNothingOfOthers(t *testing.T) {
	k := startCollector(t)
	l := newLiar(t)
	l.Register(k.Client)
	uids := map[string]string{}
	for _, name := range []string{"deleted", "replaced", "orphaned"} {
		uids[name] = k.make(mapsPath, name, "")
		k.make(secretsPath, "of-"+name, ownedBy("v1", "ConfigMap", name, uids[name], true))
	}
	k.settled()
	object := func(uid, more string) string {
		return fmt.Sprintf(`{%s,"metadata":{"name":"x","namespace":"default","resourceVersion":"900000000000","uid":%q%s}}`,
			fooKind, uid, more)
	}
	missing := `,"ownerReferences":[` + ownedBy("v1", "ConfigMap", "missing", "none", false) + `]`
	for _, event := range []string{
		`{"type":"DELETED","object":` + object(uids["deleted"], "") + `}`,
		`{"type":"ADDED","object":` + object(uids["replaced"], missing) + `}`,
		`{"type":"DELETED","object":` + object(uids["replaced"], "") + `}`,
		`{"type":"MODIFIED","object":` + object(uids["orphaned"],
			`,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["orphan","foregroundDeletion"]`) + `}`,
		`{"type":"ADDED","object":` + object("its-own", missing) + `}`,
	} {
		l.events <- event
	}
	select {
	case <-l.deleted:
	case <-time.After(30 * time.Second):
		t.Fatal("waited 30 s for the collector to delete the extension's own object, whose owner is missing")
	}
	k.settled()
	for name, uid := range uids {
		if owners := k.Metadata(secretsPath + "/of-" + name).OwnerReferences; len(owners) != 1 || string(owners[0].UID) != uid {
			t.Errorf("the dependent of %s has the owners %v", name, owners)
		}
		if m := k.Metadata(mapsPath + "/" + name); m.DeletionTimestamp != nil {
			t.Errorf("%s is being deleted", name)
		}
	}
}
