package informer_test

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// late is a transformer that needs a key, which is not there at first.
type late struct{ ready atomic.Bool }

func (l *late) ToStore(_ context.Context, _ string, plain []byte) ([]byte, error) { return plain, nil }

func (l *late) FromStore(_ context.Context, _ string, value []byte) ([]byte, bool, error) {
	if l.ready.Load() {
		return value, false, nil
	}
	return nil, false, &storage.PendingError{Need: "a key", Obtain: func(context.Context) error {
		if l.ready.Load() {
			return nil
		}
		return context.DeadlineExceeded
	}}
}

// TestObjectsThatCanBeReadLater checks that an informer gets an object that could not be read as
// soon as it can be read, even though the object does not change.
func TestObjectsThatCanBeReadLater(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := cache.New(cache.Options{Store: store})
	defer c.Close()
	all, err := registry.New([]*registry.Kind{configMaps()}, store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	provider := &late{}
	all.Transform(func(schema.GroupResource) registry.Transformer { return provider })
	r := all.Resource(corev1.Resource("configmaps"))
	create(t, r, "one", "1")
	var m mirror
	f := start(
		t.Context(), t, informer.Options{Resource: r, Reset: m.reset, Apply: m.apply, Log: slog.New(slog.DiscardHandler)},
	)
	create(t, r, "two", "2")
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.state(); len(got) != 0 {
		t.Fatalf("read without a key: %v", got)
	}
	provider.ready.Store(true)
	want := map[string]string{"ns/one": "1", "ns/two": "2"}
	for limit := time.Now().Add(30 * time.Second); !maps.Equal(m.state(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("30 s after the key came: %v", m.state())
		}
	}
}
