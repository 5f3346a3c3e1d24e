package server

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// knownDefaults has the default objects that the first server of this process created, by the configuration that they
// depend on (a string). Its values never change; it saves later servers the time to make the same objects again.
var knownDefaults sync.Map

// defaults creates the first objects of a new store.
type defaults struct {
	config   *settings
	store    storage.Store // the main one
	registry *registry.Registry
	client   *client.Client
}

// key returns the key of knownDefaults. It is empty if the objects must be created one by one: in a store that
// has namespaces already or to which others write, and with plug-ins of tests.
func (d *defaults) key(ctx context.Context) (string, error) {
	if !storage.IsExclusive(d.store) || len(d.config.testPlugins) > 0 {
		return "", nil
	}
	isNew := true
	err := d.registry.Resource(corev1.Resource("namespaces")).Reader.All(ctx, "", func(*cache.Object) bool {
		isNew = false
		return false
	})
	if err != nil || !isNew {
		return "", err
	}
	c := d.config
	return fmt.Sprintf("%+v %+v %+v", c.API, c.Admission, c.Authorization), nil
}

// create creates the objects of bootstrap.Defaults if they are known, and reports whether they exist now. A
// server that is started from a snapshot creates nothing. Otherwise it
// creates the namespaces, in which the following steps create objects.
func (d *defaults) create(ctx context.Context, key string) (bool, error) {
	if d.config.origin != nil {
		return true, nil
	}
	if known, ok := knownDefaults.Load(key); ok && key != "" {
		return true, known.(*bootstrap.Defaults).Create(ctx, d.registry, d.config.Testing.Clock.Now())
	}
	return false, bootstrap.Namespaces(ctx, d.registry, d.client)
}

// keep remembers the objects that this server has created, for the next server.
func (d *defaults) keep(ctx context.Context, key string) error {
	if key == "" {
		return nil
	}
	made, err := bootstrap.ReadDefaults(ctx, d.registry)
	if err == nil {
		knownDefaults.Store(key, made)
	}
	return err
}
