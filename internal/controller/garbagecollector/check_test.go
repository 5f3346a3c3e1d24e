package garbagecollector

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/client/clienttest"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// testCollector returns a Collector that follows no resources: the test fills its graph.
func testCollector(t *testing.T) *Collector {
	t.Helper()
	api := clienttest.New(t, "", "tester")
	c := newCollector(t.Context(), Options{
		Client: api.Client, Local: Local{api.Client},
		Directory: api.Directory, Resources: discovery.New(api.Directory, nil, ""), Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	t.Cleanup(func() { c.check.Close(); c.orphan.Close() })
	return c
}

// createOwned creates a ConfigMap whose owner does not exist, and brings it into the graph.
func createOwned(t *testing.T, c *Collector) *corev1.ConfigMap {
	t.Helper()
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = "ns", "a"
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "missing", UID: "missing"}}
	created, err := c.Client.Create(t.Context(), client.CreateRequest{Resource: configMaps, Object: m})
	if err != nil {
		t.Fatal(err)
	}
	ref := client.Ref{Resource: configMaps, Namespace: "ns", Name: "a"}
	metadata, err := c.Client.GetMetadata(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	c.graph.set(&location{resource: configMaps, apiVersion: "v1", kind: "ConfigMap", namespace: "ns"}, metadata, 1)
	return created.(*corev1.ConfigMap)
}

// TestStaleStatesDeleteNothing: the collector does not delete an object because of an outdated state, and does not
// delete another object with the same name.
func TestStaleStatesDeleteNothing(t *testing.T) {
	ref := client.Ref{Resource: configMaps, Namespace: "ns", Name: "a"}
	for name, change := range map[string]func(*testing.T, *Collector){
		"the owner was removed": func(t *testing.T, c *Collector) {
			if _, err := c.Client.Update(t.Context(), client.UpdateRequest{Ref: ref, Change: func(o registry.Object) error {
				o.SetOwnerReferences(nil)
				return nil
			}}); err != nil {
				t.Fatal(err)
			}
		},
		"the object was replaced": func(t *testing.T, c *Collector) {
			if _, err := c.Client.Delete(t.Context(), client.DeleteRequest{Ref: ref}); err != nil {
				t.Fatal(err)
			}
			m := &corev1.ConfigMap{}
			m.Namespace, m.Name = "ns", "a"
			if _, err := c.Client.Create(t.Context(), client.CreateRequest{Resource: configMaps, Object: m}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := testCollector(t)
			created := createOwned(t, c)
			change(t, c)
			if err := c.checkObject(t.Context(), created.UID); !kerrors.IsConflict(err) {
				t.Errorf("the check returns %v, want a conflict", err)
			}
			if _, err := c.Client.Get(t.Context(), ref); err != nil {
				t.Errorf("the object is gone: %v", err)
			}
		})
	}
}

// TestUnknownKindsDeleteNothing: nothing is deleted while it is not known whether an owner exists.
func TestUnknownKindsDeleteNothing(t *testing.T) {
	c := testCollector(t)
	created := createOwned(t, c)
	c.Resources = unknownKinds{}
	if err := c.checkObject(t.Context(), created.UID); err == nil {
		t.Error("the check succeeds")
	}
	c.Resources = discovery.New(c.Directory, nil, "")
	if err := c.checkObject(t.Context(), created.UID); err != nil {
		t.Error(err)
	}
	ref := client.Ref{Resource: configMaps, Namespace: "ns", Name: "a"}
	if _, err := c.Client.Get(t.Context(), ref); !kerrors.IsNotFound(err) {
		t.Errorf("the object is not deleted when the kind is known: %v", err)
	}
}

type unknownKinds struct{}

func (unknownKinds) Preferred() ([]discovery.Resource, []schema.GroupVersion) { return nil, nil }

func (unknownKinds) OfKind(schema.GroupVersionKind) (discovery.Resource, bool) {
	return discovery.Resource{}, false
}

// TestSettleNeedsTheLatestChanges: an orphaning does not end while the graph lacks changes of a resource that can be
// read. A resource that cannot be read stops nothing.
func TestSettleNeedsTheLatestChanges(t *testing.T) {
	c := testCollector(t)
	c.Revision = func(context.Context) (int64, error) { return 7, nil }
	m := &monitor{stop: func() {}, tick: make(chan time.Time, 1)}
	m.revision.Store(6)
	c.monitors[configMaps] = m
	c.Resources = staleKinds{configMaps.GroupVersion()}
	if err := c.settle(t.Context()); !errors.Is(err, errBehind) {
		t.Errorf("a resource is behind: %v", err)
	}
	m.failing.Store(true)
	if err := c.settle(t.Context()); err != nil {
		t.Errorf("a resource cannot be read: %v", err)
	}
	m.failing.Store(false)
	m.revision.Store(7)
	if err := c.settle(t.Context()); err != nil {
		t.Errorf("all changes are there: %v", err)
	}
}

// staleKinds is a group version whose resources are not known at the moment, so that its monitors stay.
type staleKinds struct{ gv schema.GroupVersion }

func (s staleKinds) Preferred() ([]discovery.Resource, []schema.GroupVersion) {
	return nil, []schema.GroupVersion{s.gv}
}

func (staleKinds) OfKind(schema.GroupVersionKind) (discovery.Resource, bool) {
	return discovery.Resource{}, false
}

// unreachable are the objects of an extension API server that fails, or does not answer until ctx ends.
type unreachable struct {
	*model
	hangs bool
}

func (u unreachable) ListMetadata(
	ctx context.Context, _ client.ListRequest, _ func(client.Metadata) bool,
) (int64, error) {
	if u.hangs {
		<-ctx.Done()
	}
	return 0, errors.New("the server fails")
}

// remoteKinds has one resource, of an extension API server.
type remoteKinds struct{ unknownKinds }

func (remoteKinds) Preferred() ([]discovery.Resource, []schema.GroupVersion) {
	return []discovery.Resource{{
		GroupVersionResource: schema.GroupVersionResource{Group: "evil.io", Version: "v1", Resource: "foos"},
		Kind:                 "Foo", Remote: true, Verbs: []string{"delete", "list", "watch"},
	}}, nil
}

// TestUnreachableServersDelayNothing: the collector begins its work although a resource cannot be listed: at once if the
// list fails, after syncTime if there is no answer.
func TestUnreachableServersDelayNothing(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(map[bool]string{false: "fails", true: "hangs"}[hangs], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				c := newCollector(ctx, Options{
					Remote: unreachable{hangs: hangs}, Directory: directory.New(), Resources: remoteKinds{},
					RemoteChanged: func() <-chan struct{} { return nil }, Log: slog.New(slog.DiscardHandler), Now: time.Now,
				})
				begun, ended := time.Now(), make(chan error)
				go func() { ended <- c.monitorAll(ctx) }()
				select {
				case <-c.listed:
				case <-time.After(time.Hour):
					t.Fatal("waited an hour (of the test's clock) for the collector to begin")
				}
				if took, most := time.Since(begun), map[bool]time.Duration{true: syncTime}[hangs]; took > most {
					t.Errorf("the collector began after %v, want %v", took, most)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				c.tasks.Wait()
				c.check.Close()
				c.orphan.Close()
			})
		})
	}
}

// shaky are the objects of a server whose lists fail, or whose watches end after the time lasts. It counts the
// lists.
type shaky struct {
	*model
	listFails bool
	lasts     time.Duration // the duration of a watch
	lists     *int
}

func (s shaky) ListMetadata(context.Context, client.ListRequest, func(client.Metadata) bool) (int64, error) {
	*s.lists++
	if s.listFails {
		return 0, errors.New("the list is too large")
	}
	return 1, nil
}

func (s shaky) WatchMetadata(context.Context, client.WatchRequest) (Watch, error) {
	return shortWatch{s.lasts}, nil
}

type shortWatch struct{ lasts time.Duration }

func (w shortWatch) NextMetadata(
	ctx context.Context, _ <-chan time.Time,
) ([]client.MetadataChange, int64, error) {
	workers.Pause(ctx, w.lasts)
	return nil, 0, errors.New("the watch has ended")
}

func (shortWatch) Close() {}

// TestFailingListsAreRare: a resource of an extension API server that fails again and again is listed about once a
// minute, even if the list succeeds and only the watch fails. If its watch has lasted for some time, it is listed
// again at once, like resources of this server.
func TestFailingListsAreRare(t *testing.T) {
	const hour = time.Hour
	for name, test := range map[string]struct {
		remote, listFails bool
		lasts             time.Duration
		least, most       int
	}{
		"lists fail":             {remote: true, listFails: true, least: 60, most: 70},
		"watches end at once":    {remote: true, least: 60, most: 70},
		"watches end after 10 s": {remote: true, lasts: 10 * time.Second, least: 50, most: 60},
		"watches last":           {remote: true, lasts: 2 * time.Minute, least: 29, most: 31},
		"of this server":         {listFails: true, least: 3590, most: 3601},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), hour)
				defer cancel()
				lists := 0
				objects := shaky{listFails: test.listFails, lasts: test.lasts, lists: &lists}
				c := newCollector(ctx, Options{Remote: objects, Local: objects, Log: slog.New(slog.DiscardHandler), Now: time.Now})
				c.Activity.Add(1) // until isSynced
				m := &monitor{
					c: c, resource: discovery.Resource{Remote: test.remote}, locations: map[string]*location{},
					synced: make(chan struct{}), tick: make(chan time.Time, 1),
				}
				m.run(ctx)
				if lists < test.least || lists > test.most {
					t.Errorf("%d lists in an hour, want %d to %d", lists, test.least, test.most)
				}
				c.check.Close()
				c.orphan.Close()
			})
		})
	}
}

// grows has no resource at first. Later it has the resource of remoteKinds.
type grows struct {
	remoteKinds
	known   atomic.Bool
	changed chan struct{}
}

func (g *grows) Preferred() ([]discovery.Resource, []schema.GroupVersion) {
	if !g.known.Load() {
		return nil, nil
	}
	return g.remoteKinds.Preferred()
}

// TestNewRemoteResourcesAreFollowed: a new resource of an extension API server soon has a monitor.
func TestNewRemoteResourcesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := &grows{changed: make(chan struct{})}
		c := newCollector(ctx, Options{
			Remote: unreachable{}, Directory: directory.New(), Resources: g,
			RemoteChanged: func() <-chan struct{} {
				if g.known.Load() {
					return nil
				}
				return g.changed
			},
			Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})
		ended := make(chan error)
		go func() { ended <- c.monitorAll(ctx) }()
		<-c.listed
		g.known.Store(true)
		close(g.changed)
		time.Sleep(2 * resyncPause)
		synctest.Wait()
		c.mu.Lock()
		if len(c.monitors) != 1 {
			t.Errorf("%d monitors, want 1", len(c.monitors))
		}
		c.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.tasks.Wait()
		c.check.Close()
		c.orphan.Close()
	})
}
