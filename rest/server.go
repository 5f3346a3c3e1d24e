package rest

import (
	"context"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// UpdateAs changes an object as a client with that field manager would: what the
// server does by itself to its own objects. change is given the latest object, in
// that version, and again after a concurrent change.
func (h *Handler) UpdateAs(ctx context.Context, resource, version, group, namespace, name, manager string, change func(registry.Object) error) error {
	s := h.served[servedKey{group, version, resource}]
	if s == nil {
		return apierr.PathNotFound()
	}
	info := &request.Info{
		Verb: "update", Group: group, Version: version, Resource: resource, Namespace: namespace, Name: name,
	}
	o := writeOptions{manager: manager}
	options := h.updateOptions(info, s, nil, o)
	_, err := s.Update(ctx, namespace, name, options, h.admitted(ctx, info, s, o, func(c *registry.Current) (registry.Object, error) {
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
		if obj, err = h.own(s, "", live, obj, manager); err != nil {
			return nil, err
		}
		return s.ToStorage(obj, s.version)
	}))
	return err
}
