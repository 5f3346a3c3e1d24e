package rest

import (
	"context"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/scheme/wire"
)

// answer serves POST of a kind whose objects are questions: what is answered is
// the object with its status, and nothing is kept.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	answer := h.o.Answers[s.gr]
	if answer == nil {
		return notServed(info.Resource)
	}
	if s.Kind.Namespaced && info.Namespace == "" {
		return apierr.PathNotFound()
	}
	accepted, err := h.responseFor(r, info)
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
	registry.WipeServerFields(obj)
	if err := s.placeIn(info.Namespace, obj); err != nil {
		return err
	}
	if obj, err = h.own(s, "", nil, obj, o.manager); err != nil {
		return err
	}
	a := h.admits(s, info.Namespace, obj.GetName(), "", o.dryRun)
	if err := a.mutate(r.Context(), obj, nil); err != nil {
		return err
	}
	out, err := answer(r.Context(), h.o.Registry, registry.CreateRequest{
		Namespace: info.Namespace, Name: obj.GetName(), Body: obj, DryRun: o.dryRun, FieldManager: o.manager, Admit: a.validate,
	})
	if err != nil {
		return err
	}
	out.GetObjectKind().SetGroupVersionKind(s.gvk)
	return writeTyped(w, r, http.StatusCreated, accepted, wire.NewEnvelopeHead(s.gvk.GroupVersion().String(), s.gvk.Kind), out)
}

// placeIn makes the namespace of an object that of the request.
func (s *served) placeIn(namespace string, obj registry.Object) error {
	if own := obj.GetNamespace(); s.Kind.Namespaced && own != "" && own != namespace {
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(namespace)
	return nil
}

// mayCreate says whether the user of a PUT or PATCH that found nothing may create
// the object. The server itself, which sends no requests, may.
func (h *Handler) mayCreate(ctx context.Context, info *request.Info) error {
	user := request.UserFrom(ctx)
	if h.o.Authorizer == nil || user == nil {
		return nil
	}
	create := *info
	create.Verb = "create"
	return authz.Check(ctx, h.o.Authorizer, authz.Attributes{User: user, Info: &create})
}
