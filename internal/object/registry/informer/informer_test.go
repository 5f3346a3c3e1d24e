package informer_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// writer writes objects.
var writer = writetest.New(nil)

func configMaps() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "configmaps", Name: "ConfigMap", Namespaced: true,
		},
		Versions: []registry.Version{{Name: "v1", New: func() registry.Object { return &corev1.ConfigMap{} }}},
		Storage:  registry.Storage{Version: "v1", Path: "configmaps"},
	}
}

func resource(t *testing.T) *registry.Resource {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		c.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	reg, err := registry.New([]*registry.Kind{configMaps()}, store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return reg.Resource(corev1.Resource("configmaps"))
}

// mirror is a copy of the state of a resource, which informers are used for.
type mirror struct {
	mu    sync.Mutex
	value map[string]string
}

func (m *mirror) reset(all []informer.Change) {
	m.mu.Lock()
	m.value = map[string]string{}
	m.mu.Unlock()
	m.apply(all)
}

func (m *mirror) apply(changes []informer.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		key := c.Namespace + "/" + c.Name
		if c.Object == nil {
			delete(m.value, key)
			continue
		}
		m.value[key] = c.Object.(*corev1.ConfigMap).Data["v"]
	}
}

func (m *mirror) state() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.value)
}

func create(t *testing.T, r *registry.Resource, name, value string) {
	t.Helper()
	cm := &corev1.ConfigMap{Data: map[string]string{"v": value}}
	cm.Name = name
	if _, err := writer.Create(t.Context(), r, "ns", cm, writetest.Options{}); err != nil {
		t.Fatal(err)
	}
}

// start loads the objects and follows them until the test ends.
func start(ctx context.Context, t *testing.T, o informer.Options) *informer.Informer {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	f, err := informer.Load(ctx, o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

// TestStartRunsInTheBackgroundAlone checks that an informer runs only in functions that Background is called with,
// so that the server can wait for it. If such a function is called again, it also applies the changes in between.
func TestStartRunsInTheBackgroundAlone(t *testing.T) {
	r := resource(t)
	var m mirror
	runs := map[string]func(context.Context){}
	all, err := informer.Start(t.Context(), func(name string, run func(context.Context)) { runs[name] = run }, "test: ",
		informer.Options{Resource: r, Reset: m.reset, Apply: m.apply, Log: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	run := runs["test: configmaps"]
	if len(all) != 1 || len(runs) != 1 || run == nil {
		t.Fatalf("%d informers, started as %v", len(all), slices.Collect(maps.Keys(runs)))
	}
	create(t, r, "one", "1")
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "registry/informer.(") {
		t.Errorf("something runs that was not started in the background:\n%s", stacks)
	}
	for _, name := range []string{"two", "three"} {
		create(t, r, name, "1")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { run(ctx); close(ended) }()
		if err := all[0].Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := m.state(); got["ns/"+name] != "1" || got["ns/one"] != "1" {
			t.Errorf("%v", got)
		}
		cancel()
		<-ended
	}
}

func TestSyncSeesEveryAcknowledgedWrite(t *testing.T) {
	r := resource(t)
	create(t, r, "before", "0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var m mirror
	f := start(ctx, t, informer.Options{Resource: r, Reset: m.reset, Apply: m.apply, Log: slog.Default()})
	if got := m.state(); !maps.Equal(got, map[string]string{"ns/before": "0"}) {
		t.Fatalf("after Start: %v", got)
	}
	for i := range 200 {
		name := fmt.Sprint("c", i)
		create(t, r, name, "1")
		if err := f.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if got := m.state()["ns/"+name]; got != "1" {
			t.Fatalf("%s is not there after Sync: %q", name, got)
		}
		if _, err := writer.Delete(ctx, r, "ns", name, &metav1.DeleteOptions{}, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if got, ok := m.state()["ns/"+name]; ok {
			t.Fatalf("%s is there after its deletion: %q", name, got)
		}
	}
}

// TestSyncOwnSeesEveryWriteOfThisProcess checks that SyncOwn waits for the writes of this process and for nothing
// else: without a write it returns at once.
func TestSyncOwnSeesEveryWriteOfThisProcess(t *testing.T) {
	r := resource(t)
	var m mirror
	f := start(t.Context(), t, informer.Options{Resource: r, Reset: m.reset, Apply: m.apply, Log: slog.Default()})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.SyncOwn(ended); err != nil {
		t.Fatalf("without a write: %v", err)
	}
	for i := range 200 {
		name := fmt.Sprint("c", i)
		create(t, r, name, "1")
		if err := f.SyncOwn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := m.state()["ns/"+name]; got != "1" {
			t.Fatalf("%s is not there after SyncOwn: %q", name, got)
		}
		if _, err := writer.Delete(t.Context(), r, "ns", name, &metav1.DeleteOptions{}, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.SyncOwn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, ok := m.state()["ns/"+name]; ok {
			t.Fatalf("%s is there after its deletion: %q", name, got)
		}
	}
}

func TestOtherObjectsAreNotDecoded(t *testing.T) {
	r := resource(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var m mirror
	f := start(ctx, t, informer.Options{
		Resource: r, Reset: m.reset, Apply: m.apply, Log: slog.Default(),
		Concerns: func(o, _ *cache.Object) bool { return o.Name != "other" },
	})
	decodes := r.Decoder.Decodes()
	create(t, r, "other", "1")
	written := r.Decoder.Decodes() - decodes // by the write itself
	if err := f.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if got := m.state(); len(got) != 0 || r.Decoder.Decodes()-decodes != written {
		t.Errorf("%v, %d decodes after %d of the write", got, r.Decoder.Decodes()-decodes, written)
	}
}
