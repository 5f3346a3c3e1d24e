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

// knownDefaults maps a configuration (a string) to the default objects that the first server with it created in
// this process. Its values never change. Later servers need not make these objects again, which saves time.
var knownDefaults sync.Map

// defaults creates the first objects of a new store.
type defaults struct {
	config   *settings
	store    storage.Store // the main one
	registry *registry.Registry
	client   *client.Client
}

// key returns the key of knownDefaults. It is "" if the objects must be created one by one: if the store already
// has namespaces, if other servers write to it, or if there are test plug-ins.
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

// create creates the objects of bootstrap.Defaults if knownDefaults has them for key. Otherwise it creates only
// the namespaces, for the steps that follow. It reports whether all default objects exist now. A server that is
// started from a snapshot already has them.
func (d *defaults) create(ctx context.Context, key string) (bool, error) {
	if d.config.origin != nil {
		return true, nil
	}
	if known, ok := knownDefaults.Load(key); ok && key != "" {
		return true, known.(*bootstrap.Defaults).Create(ctx, d.registry, d.config.Testing.Clock.Now())
	}
	return false, bootstrap.Namespaces(ctx, d.registry, d.client)
}

// keep stores the default objects of this server in knownDefaults, for later servers of the process.
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
