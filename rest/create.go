package rest

import (
	"context"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/negotiate"
)

// create stores a new object.
func (h *Handler) create(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.incoming(r, info, s, createOptions)
	if err != nil {
		return err
	}
	obj, err := s.decodeBody(r, in)
	if err != nil {
		return err
	}
	result, err := h.store(r.Context(), s, info.Namespace, obj, in.writeOptions)
	if err != nil {
		return err
	}
	return h.writeResult(w, r, s, http.StatusCreated, in.accepted, result)
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

// placeIn makes the namespace of an object that of the request.
func (s *served) placeIn(namespace string, obj registry.Object) error {
	if own := obj.GetNamespace(); s.Kind.Namespaced && own != "" && own != namespace {
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(namespace)
	return nil
}

// writeResult answers what a write left behind.
func (h *Handler) writeResult(w http.ResponseWriter, r *http.Request, s *served, code int, accepted negotiate.Accepted, result registry.Result) error {
	item, err := s.ResultJSON(result, s.version)
	if err != nil {
		return err
	}
	// The next write of the object makes both the answer's own.
	if err := hold(w, r, len(result.Object.Data)+len(item)); err != nil {
		return err
	}
	return h.writeView(w, r, s, code, accepted, view{o: result.Object, item: item})
}

// codeOf is the status of an update or patch that succeeded.
func codeOf(result registry.Result) int {
	if result.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}
