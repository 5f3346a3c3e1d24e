package registry_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// TestRevisionsOfTwoStores checks which resources have revisions that can be compared with those of namespaces.
func TestRevisionsOfTwoStores(t *testing.T) {
	var places [2]registry.Backend
	for i := range places {
		store, err := embedded.Open(embedded.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		c := cache.New(cache.Options{Store: store})
		t.Cleanup(func() {
			c.Close()
			_ = store.Close()
		})
		places[i] = registry.Backend{Store: store, Cache: c}
	}
	all, err := registry.NewPlaced(resource.Kinds(features.Gates{}), func(k *registry.Kind, _ string) registry.Backend {
		if k.Resource == "configmaps" {
			return places[1]
		}
		return places[0]
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"namespaces": true, "secrets": true, "configmaps": false} {
		if got := all.HasRevisionsOfNamespaces(all.Resource(corev1.Resource(name))); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
