package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// NamespaceState is whether a namespace takes new objects.
type NamespaceState int

const (
	NamespaceActive NamespaceState = iota
	NamespaceMissing
	NamespaceTerminating
)

// deletionTimestampPath is metadata.deletionTimestamp of an object's message.
var deletionTimestampPath = []int32{1, 9}

// NamespaceState returns the state of a namespace, read from its stored bytes because every create in it calls this.
func (g *Registry) NamespaceState(ctx context.Context, name string) (NamespaceState, error) {
	r := g.resources[schema.GroupResource{Resource: "namespaces"}]
	o, err := r.lookup(ctx, name)
	if err != nil || o == nil {
		return NamespaceMissing, err
	}
	deleting, err := wire.Find(o.Data, deletionTimestampPath)
	if err == nil && deleting.Found {
		return NamespaceTerminating, nil
	}
	return NamespaceActive, err
}

// NamespaceSince returns the revision at which a namespace was created, 0 if there is none.
func (g *Registry) NamespaceSince(ctx context.Context, name string) (int64, error) {
	o, err := g.resources[schema.GroupResource{Resource: "namespaces"}].lookup(ctx, name)
	if err != nil || o == nil {
		return 0, err
	}
	return o.CreateRevision, nil
}

// HasRevisionsOfNamespaces reports whether a revision of the resource can be compared with the one at which a namespace
// was created: both are in one store. With --etcd-servers-overrides they may not be.
func (g *Registry) HasRevisionsOfNamespaces(r *Resource) bool {
	namespaces := g.resources[schema.GroupResource{Resource: "namespaces"}]
	return namespaces != nil && namespaces.store == r.store
}

// lookup finds an object in a state that has every change that this process has acknowledged: first in the cache, then
// in the store. It returns nil if there is none.
func (r *Resource) lookup(ctx context.Context, key string) (*cache.Object, error) {
	view, err := r.cache.View(ctx, r.LastWrite())
	if err != nil {
		return nil, err
	}
	o, _, err := view.Get(ctx, key)
	if err == nil && o == nil && view.Loaded() {
		o, err = r.current(ctx, key)
	}
	if err != nil || o == nil {
		return nil, err
	}
	return r.Readable(ctx, o)
}
