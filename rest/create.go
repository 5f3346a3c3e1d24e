package rest

import (
	"context"
	"net/http"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/negotiate"
)

// create stores a new object.
func (h *Handler) create(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.objectsFor(r, info, s)
	if err != nil {
		return err
	}
	media, err := h.formats.Body(r)
	if err != nil {
		return err
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	o, err := parseWriteOptions(r, "CreateOptions", "")
	if err != nil {
		return err
	}
	obj, err := s.decodeBody(r, media, body, o.validation)
	if err != nil {
		return err
	}
	result, err := h.store(r.Context(), s, info.Namespace, obj, o)
	if err != nil {
		return err
	}
	return h.writeResult(w, r, s, http.StatusCreated, accepted, result)
}

// store hands a new object, defaulted, to the registry.
func (h *Handler) store(ctx context.Context, s *served, namespace string, obj registry.Object, o writeOptions) (registry.Result, error) {
	if err := s.admitsNew(obj.GetName()); err != nil {
		return registry.Result{}, err
	}
	registry.WipeServerFields(obj)
	// Before admission, which has an opinion on what could not be stored too.
	if err := s.placeIn(namespace, obj); err != nil {
		return registry.Result{}, err
	}
	obj, err := h.own(s, "", nil, obj, o.manager)
	if err != nil {
		return registry.Result{}, err
	}
	if obj, err = s.ToStorage(obj, s.version); err != nil {
		return registry.Result{}, err
	}
	a := h.admits(s, namespace, obj.GetName(), "", o.dryRun)
	if err := a.mutate(ctx, obj, nil); err != nil {
		return registry.Result{}, err
	}
	return s.Create(ctx, namespace, obj, registry.CreateOptions{DryRun: o.dryRun, Group: s.gr.Group, Admit: a.validate})
}

// CreateAs creates an object as a client with that field manager would: the
// server's own objects come this way.
func (h *Handler) CreateAs(ctx context.Context, resource, version, group string, obj registry.Object, manager string) error {
	s := h.served[servedKey{group, version, resource}]
	if s == nil {
		return apierr.PathNotFound()
	}
	if s.version.Default != nil {
		s.version.Default(obj)
	}
	_, err := h.store(ctx, s, obj.GetNamespace(), obj, writeOptions{manager: manager})
	return err
}

// UpdateStatusAs changes an object through its status subresource as a client with
// that field manager would; change runs again after a conflict.
func (h *Handler) UpdateStatusAs(ctx context.Context, resource, version, group, namespace, name, manager string, change func(registry.Object) error) error {
	s := h.served[servedKey{group, version, resource}]
	if s == nil {
		return apierr.PathNotFound()
	}
	const status = "status"
	o := registry.UpdateOptions{Group: group, Subresource: s.Kind.Subresource(status)}
	_, err := s.Update(ctx, namespace, name, o, func(c *registry.Current) (registry.Object, error) {
		obj, err := c.Decode()
		if err == nil {
			obj, err = s.ToVersion(obj, s.version)
		}
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
		if obj, err = h.own(s, status, live, obj, manager); err != nil {
			return nil, err
		}
		return s.ToStorage(obj, s.version)
	})
	return err
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

// writeResult answers what a write left behind.
func (h *Handler) writeResult(w http.ResponseWriter, r *http.Request, s *served, code int, accepted negotiate.Accepted, result registry.Result) error {
	item, err := s.ResultJSON(result, s.version)
	if err != nil {
		return err
	}
	return h.writeView(w, r, s, code, accepted, view{o: result.Object, item: item})
}
