package rest

import (
	"cmp"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/negotiate"
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
	in, err := h.incoming(r, info, s, createOptions)
	if err != nil {
		return err
	}
	obj, err := s.decodeBody(r, in)
	if err != nil {
		return err
	}
	registry.WipeServerFields(obj)
	if err := s.placeIn(info.Namespace, obj); err != nil {
		return err
	}
	if obj, err = h.own(s, "", nil, obj, in.manager); err != nil {
		return err
	}
	return h.handle(w, r, info, s, in, s.gvk, obj, answer)
}

// handle hands an admitted body of a kind to what handles it, and answers what that
// returns: the success alone where that is nothing.
func (h *Handler) handle(w http.ResponseWriter, r *http.Request, info *request.Info, s *served, in incoming, gvk schema.GroupVersionKind, body registry.Object, handle registry.CreateFunc) error {
	name := cmp.Or(info.Name, body.GetName())
	a := h.admits(s, info.Namespace, name, info.Subresource, in.dryRun)
	if err := a.mutate(r.Context(), body, nil); err != nil {
		return err
	}
	out, err := handle(r.Context(), h.o.Registry, registry.CreateRequest{
		Namespace: info.Namespace, Name: name, Body: body, DryRun: in.dryRun, FieldManager: in.manager, Admit: a.validate,
	})
	if err != nil {
		return err
	}
	if out == nil {
		status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
		return writeTyped(w, r, http.StatusCreated, negotiate.Accepted{Media: in.accepted.Media, Pretty: in.accepted.Pretty}, statusProto, status)
	}
	out.GetObjectKind().SetGroupVersionKind(gvk)
	return writeTyped(w, r, http.StatusCreated, in.accepted, wire.NewEnvelopeHead(gvk.GroupVersion().String(), gvk.Kind), out)
}
