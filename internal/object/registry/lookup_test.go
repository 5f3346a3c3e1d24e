package registry_test

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// delayedStore is a store whose watches deliver nothing while held is locked.
type delayedStore struct {
	storage.Store
	held sync.RWMutex
}

func (d *delayedStore) Watch(ctx context.Context, prefix string, from int64) (storage.Watcher, error) {
	w, err := d.Store.Watch(ctx, prefix, from)
	return &delayedWatcher{w, d}, err
}

type delayedWatcher struct {
	storage.Watcher
	store *delayedStore
}

func (w *delayedWatcher) Next(ctx context.Context) (storage.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	w.store.held.RLock()
	defer w.store.held.RUnlock()
	return b, err
}

// TestLookupSeesAcknowledgedChanges looks an object up after a change was acknowledged that the cache does not have yet.
func TestLookupSeesAcknowledgedChanges(t *testing.T) {
	inner, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	store := &delayedStore{Store: inner}
	c := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		c.Close()
		_ = inner.Close()
	})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := reg.Resource(corev1.Resource("namespaces"))
	namespace := &corev1.Namespace{}
	namespace.Name, namespace.Labels = "n", map[string]string{"level": "old"}
	if _, err := writer.Create(t.Context(), namespaces, "", namespace, writetest.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Reader.All(t.Context(), "", func(*cache.Object) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if !namespaces.Reader.Loaded() {
		t.Fatal("the namespaces are not in memory")
	}
	store.held.Lock()
	if _, err := writer.Amend(t.Context(), namespaces, "", "n", false, func(obj registry.Object) error {
		obj.SetLabels(map[string]string{"level": "new"})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	lookup := func(ctx context.Context) (string, error) {
		obj, err := reg.Lookup(ctx, corev1.Resource("namespaces"), "", "n")
		if err != nil {
			return "", err
		}
		return obj.GetLabels()["level"], nil
	}
	// It waits for the change, or reads it from the store.
	limited, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if level, err := lookup(limited); err == nil && level != "new" {
		t.Errorf("after the change was acknowledged the level is %q", level)
	}
	store.held.Unlock()
	if level, err := lookup(t.Context()); err != nil || level != "new" {
		t.Errorf("level %q, %v", level, err)
	}
}
