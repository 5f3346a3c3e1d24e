package registry

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Backend is a store with the cache on it.
type Backend struct {
	Store storage.Store
	Cache *cache.Cache
	// Whole is the store of which Store is a part, with the same revisions. It is nil if Store is whole.
	Whole storage.Store
	// Metrics are the metrics of store and cache; nil records nothing.
	Metrics *cache.Stores
}

// Registry is the set of resources that a server serves.
type Registry struct {
	resources map[schema.GroupResource]*Resource
	list      []*Resource
	byPath    map[string]*Resource // by Kind.Storage.Path

	transformer func(schema.GroupResource) Transformer // nil: see Transform
	place       func(k *Kind, prefix string) Backend
	now         func() time.Time
}

// New binds kinds to a store and to the cache on it.
func New(kinds []*Kind, store storage.Store, c *cache.Cache, now func() time.Time) (*Registry, error) {
	return NewPlaced(kinds, func(*Kind, string) Backend { return Backend{Store: store, Cache: c} }, now)
}

// NewPlaced binds each kind to the backend that place returns for it and for the prefix of its keys. Revisions of
// different stores cannot be compared.
func NewPlaced(kinds []*Kind, place func(k *Kind, prefix string) Backend, now func() time.Time) (*Registry, error) {
	g := &Registry{
		resources: map[schema.GroupResource]*Resource{}, byPath: map[string]*Resource{}, place: place, now: now,
	}
	for _, k := range kinds {
		on := place(k, Root+k.Storage.Path+"/")
		r, err := newResource(k, on, now)
		if err != nil {
			return nil, err
		}
		g.list = append(g.list, r)
		g.byPath[k.Storage.Path] = r
		for _, v := range k.Versions {
			group := k.Group
			if v.Group != "" {
				group = v.Group
			}
			g.resources[schema.GroupResource{Group: group, Resource: k.Resource}] = r
		}
	}
	return g, nil
}

// Now returns the time of the clock of API objects.
func (re *Registry) Now() time.Time { return re.now() }

// Resource returns the resource of that name, nil if there is none.
func (re *Registry) Resource(r schema.GroupResource) *Resource { return re.resources[r] }

// Resources returns all resources, in the order of the kinds.
func (re *Registry) Resources() []*Resource { return re.list }

// Get implements Access.
func (re *Registry) Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (Object, error) {
	r := re.resources[gr]
	if r == nil {
		return nil, apierr.PathNotFound()
	}
	o, err := r.Reader.find(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return r.Decoder.Decode(ctx, o)
}

// List implements Access.
func (re *Registry) List(ctx context.Context, gr schema.GroupResource, namespace string) ([]Object, error) {
	var objs []Object
	var failed error
	err := re.Each(ctx, gr, namespace, func(decode func() (Object, error)) bool {
		var obj Object
		if obj, failed = decode(); failed != nil {
			return false
		}
		objs = append(objs, obj)
		return true
	})
	if err == nil {
		err = failed
	}
	return objs, err
}

// Each calls yield for the objects of a namespace ("" means all) in the order of their keys, until it returns false.
// decode returns the object; without calling it, an object costs little.
func (re *Registry) Each(
	ctx context.Context, gr schema.GroupResource, namespace string, yield func(decode func() (Object, error)) bool,
) error {
	r := re.resources[gr]
	if r == nil {
		return apierr.PathNotFound()
	}
	return r.Reader.All(ctx, namespace, func(o *cache.Object) bool {
		return yield(func() (Object, error) {
			readable, err := r.Reader.Readable(ctx, o)
			if err != nil {
				return nil, err
			}
			return r.Decoder.Decode(ctx, readable)
		})
	})
}

// ParseKey returns the resource, the namespace and the name of the object with a key in the store. The name is
// empty if the key is not that of an object. If the registry does not have the resource, it takes the key for one
// of a custom resource.
func (re *Registry) ParseKey(key string) (gr schema.GroupResource, namespace, name string) {
	rest, ok := strings.CutPrefix(key, Root)
	if !ok {
		return gr, "", ""
	}
	parts := strings.Split(rest, "/")
	for n := min(len(parts)-1, 3); n > 0; n-- {
		if r := re.byPath[strings.Join(parts[:n], "/")]; r != nil {
			gr, parts = r.Kind.GroupResource(), parts[n:]
			if r.Kind.Namespaced != (len(parts) == 2) {
				return gr, "", ""
			}
			return gr, strings.Join(parts[:len(parts)-1], ""), parts[len(parts)-1]
		}
	}
	if len(parts) < 3 || len(parts) > 4 || !strings.Contains(parts[0], ".") {
		return gr, "", ""
	}
	return schema.GroupResource{Group: parts[0], Resource: parts[1]}, strings.Join(parts[2:len(parts)-1], ""), parts[len(parts)-1]
}
