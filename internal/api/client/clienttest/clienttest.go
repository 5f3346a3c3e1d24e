// Package clienttest has the API without HTTP for tests: the built-in resources on a store in memory, and a client.
package clienttest

import (
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// API is the API without HTTP, authorization and admission.
type API struct {
	*client.Client
	Registry  *registry.Registry
	Directory *directory.Directory
	Store     storage.Store
}

// New returns an API, which is closed when the test ends. The store is in dir, or in memory if dir is "". name is
// the field manager of the client.
func New(t testing.TB, dir, name string) *API {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: dir == "", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	kept := cache.New(cache.Options{Store: store})
	t.Cleanup(func() {
		kept.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	reg, err := registry.New(resource.Kinds(features.Gates{}), store, kept, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	resources := directory.New()
	resources.PutBuiltIn(reg, nil)
	return &API{client.New(resources, write.New(reg, nil, nil, nil), name), reg, resources, store}
}
