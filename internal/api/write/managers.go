package write

import (
	"sync"

	k8sfields "k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/keelson-dev/keelson/internal/object/managedfields"
	"github.com/keelson-dev/keelson/internal/object/mergeschema"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// managers has the field managers, one for each served version and subresource. Each is made when it is first
// needed.
type managers struct {
	made  *sync.Map // managerKey -> *managedfields.Manager
	cache *managedfields.Cache
}

type managerKey struct {
	target      *registry.Served
	subresource string
}

// managedCacheBytes bounds the decoded field sets that are kept. All resources share the bytes.
const managedCacheBytes = 8 << 20

func newManagers() managers {
	return managers{made: &sync.Map{}, cache: managedfields.NewCache(managedCacheBytes)}
}

// Forget drops the data of a resource that is not served any more. Requests may still use it.
func (p *Pipeline) Forget(t *registry.Served) {
	for i := range t.Kind.Subresources {
		p.managers.made.Delete(managerKey{t, t.Kind.Subresources[i].Name})
	}
	p.managers.made.Delete(managerKey{t, ""})
}

// get returns the manager of a key, and makes it if need be. Two requests may make the same manager at the same
// time. The managers are equal, so it does not matter which one is kept.
func (m *managers) get(key managerKey, make func() (*managedfields.Manager, error)) (*managedfields.Manager, error) {
	if found, ok := m.made.Load(key); ok {
		return found.(*managedfields.Manager), nil
	}
	made, err := make()
	if err != nil {
		return nil, err
	}
	m.made.Store(key, made)
	return made, nil
}

// of returns the manager of a resource, or of a subresource whose objects are the resource's own.
func (m *managers) of(t *registry.Served, sub *registry.Subresource) (*managedfields.Manager, error) {
	name := ""
	if sub != nil {
		name = sub.Name
	}
	return m.get(managerKey{t, name}, func() (*managedfields.Manager, error) {
		var types k8sfields.TypeConverter = mergeschema.Converter{}
		if t.Kind.Types != nil {
			types = t.Kind.Types
		}
		return managedfields.For(t.Kind, t.GVK, name, types, m.cache)
	})
}

// ofBody returns the manager of a subresource whose objects have a kind of their own; empty returns an empty object.
func (m *managers) ofBody(
	t *registry.Served, sub *registry.Subresource, empty func() registry.Object,
) (*managedfields.Manager, error) {
	return m.get(managerKey{t, sub.Name}, func() (*managedfields.Manager, error) {
		gvk := t.KindOf(sub)
		kind := &registry.Kind{
			Names:    registry.Names{Group: gvk.Group, Name: gvk.Kind},
			Versions: []registry.Version{{Name: gvk.Version, New: empty, Default: sub.Default}},
			Storage:  registry.Storage{Version: gvk.Version},
		}
		return managedfields.For(kind, gvk, sub.Name, mergeschema.Converter{}, m.cache)
	})
}
