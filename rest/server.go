package rest

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/patch"
)

// What the server does by itself to its own objects it does as a client with a field
// manager would, but nobody asks whether it may.

// CreateAs creates an object.
func (h *Handler) CreateAs(ctx context.Context, resource, version, group string, obj registry.Object, manager string) error {
	s, err := h.find(resource, version, group)
	if err != nil {
		return err
	}
	if s.version.Default != nil {
		s.version.Default(obj)
	}
	_, err = h.store(ctx, s, obj.GetNamespace(), obj, writeOptions{manager: manager})
	return err
}

// UpdateAs changes an object. change is given the latest object, in that version, and
// again after a concurrent change.
func (h *Handler) UpdateAs(ctx context.Context, resource, version, group, namespace, name, manager string, change func(registry.Object) error) error {
	s, err := h.find(resource, version, group)
	if err != nil {
		return err
	}
	info := &request.Info{
		Verb: "update", Group: group, Version: version, Resource: resource, Namespace: namespace, Name: name,
	}
	o := writeOptions{manager: manager}
	_, err = s.Update(ctx, namespace, name, h.updateOptions(info, s, nil, o), h.admitted(ctx, info, s, o, h.changed(s, name, "", manager, change)))
	return err
}

// UpdateStatusAs changes an object through its status subresource, without admission;
// change is that of UpdateAs.
func (h *Handler) UpdateStatusAs(ctx context.Context, resource, version, group, namespace, name, manager string, change func(registry.Object) error) error {
	s, err := h.find(resource, version, group)
	if err != nil {
		return err
	}
	const status = "status"
	o := registry.UpdateOptions{Group: group, Subresource: s.Kind.Subresource(status)}
	_, err = s.Update(ctx, namespace, name, o, h.changed(s, name, status, manager, change))
	return err
}

// ApplyAs applies a configuration, a JSON document, to an object or to what a
// subresource stands for, by server-side apply with force.
func (h *Handler) ApplyAs(ctx context.Context, resource, version, group, namespace, name, subresource, manager string, document []byte) error {
	s, err := h.find(resource, version, group)
	if err != nil {
		return err
	}
	info := &request.Info{
		Verb: "patch", Group: group, Version: version, Resource: resource, Namespace: namespace, Name: name, Subresource: subresource,
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, "/", nil) // its context takes warnings
	if err != nil {
		return err
	}
	force := true
	in := incoming{patch: types.ApplyYAMLPatchType, body: document, writeOptions: writeOptions{manager: manager, force: &force, validation: patch.Ignore}}
	p := patcher{incoming: in, h: h, r: r, s: s, info: info}
	if err := p.decodeApply(); err != nil {
		return err
	}
	options := h.updateOptions(info, s, s.Kind.Subresource(subresource), in.writeOptions)
	options.Create = subresource == ""
	_, err = s.Update(ctx, namespace, name, options, h.admitted(ctx, info, s, in.writeOptions, p.change))
	return err
}

// find returns the resource of that name.
func (h *Handler) find(resource, version, group string) (*served, error) {
	if s := h.served[servedKey{group, version, resource}]; s != nil {
		return s, nil
	}
	return nil, apierr.PathNotFound()
}

// changed makes of what change does to an object what an update wants: the new object
// in the storage version, with manager owning what changed.
func (h *Handler) changed(s *served, name, subresource, manager string, change func(registry.Object) error) func(*registry.Current) (registry.Object, error) {
	return func(c *registry.Current) (registry.Object, error) {
		if !c.Exists() {
			return nil, apierr.NotFound(s.gr, name)
		}
		obj, err := s.DecodeAs(c.Object, s.version)
		if err != nil {
			return nil, err
		}
		live, err := c.As(s.version)
		if err != nil {
			return nil, err
		}
		if err := change(obj); err != nil {
			return nil, err
		}
		if obj, err = h.own(s, subresource, live, obj, manager); err != nil {
			return nil, err
		}
		return s.ToStorage(obj, s.version)
	}
}
