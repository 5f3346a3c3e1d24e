package rest

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/keelson-dev/keelson/managed"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/typed"
)

// managers are the field managers, made when first needed: one for each served
// version and subresource.
type managers struct {
	sync.Map // managerKey -> *managed.Manager
	cache    *managed.Cache
}

type managerKey struct {
	s           *served
	subresource string
}

// managedCacheBytes bounds the decoded field sets that are kept.
const managedCacheBytes = 8 << 20

// forget drops the managers of a resource that is served no more.
func (m *managers) forget(s *served) {
	for i := range s.Kind.Subresources {
		m.Delete(managerKey{s, s.Kind.Subresources[i].Name})
	}
	m.Delete(managerKey{s, ""})
}

func (h *Handler) manager(s *served, subresource string) (*managed.Manager, error) {
	key := managerKey{s, subresource}
	if m, ok := h.managers.Load(key); ok {
		return m.(*managed.Manager), nil
	}
	var types managedfields.TypeConverter = typed.Converter{}
	if s.Kind.Types != nil {
		types = s.Kind.Types
	}
	m, err := managed.For(s.Kind, s.gvk, subresource, types, h.managers.cache)
	if err != nil {
		return nil, err
	}
	h.managers.Store(key, m)
	return m, nil
}

// scaleManager keeps the managed fields of a Scale.
func (h *Handler) scaleManager(s *served, sub *registry.Subresource) (*managed.Manager, error) {
	scale := *sub
	scale.New = registry.NewScale
	return h.subManager(s, &scale)
}

// subManager keeps the managed fields of a subresource whose objects are of a kind
// of their own.
func (h *Handler) subManager(s *served, sub *registry.Subresource) (*managed.Manager, error) {
	key := managerKey{s, sub.Name}
	if m, ok := h.managers.Load(key); ok {
		return m.(*managed.Manager), nil
	}
	gvk := s.kindOf(sub)
	kind := &registry.Kind{
		Group: gvk.Group, Name: gvk.Kind, Storage: gvk.Version,
		Versions: []registry.Version{{Name: gvk.Version, New: sub.New, Default: sub.Default}},
	}
	m, err := managed.For(kind, gvk, sub.Name, typed.Converter{}, h.managers.cache)
	if err != nil {
		return nil, err
	}
	h.managers.Store(key, m)
	return m, nil
}

// own records in obj's managedFields what manager set. live is the object before,
// nil for a new one; both are in the request's version.
func (h *Handler) own(s *served, subresource string, live, obj registry.Object, manager string) (registry.Object, error) {
	m, err := h.manager(s, subresource)
	if err != nil {
		return nil, err
	}
	canonicalize := s.Kind.Hooks.Canonicalize
	if canonicalize == nil || s.version.ToStorage != nil {
		return m.Update(live, obj, manager, h.o.Now()), nil
	}
	// What was set is found in the form that is kept, which obj has only once it is
	// found valid.
	kept := obj.DeepCopyObject().(registry.Object)
	canonicalize(kept)
	obj.SetManagedFields(m.Update(live, kept, manager, h.o.Now()).GetManagedFields())
	return obj, nil
}
