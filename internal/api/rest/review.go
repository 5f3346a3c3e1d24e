package rest

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// answer serves POST of a kind without stored objects, such as a review: the response is the object with its status.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	answer := h.o.Answers[s.gr]
	if answer == nil {
		return notServed(info.Resource)
	}
	// A LocalSubjectAccessReview has only the path below a namespace.
	if s.Kind.Namespaced && info.Namespace == "" {
		return apierr.PathNotFound()
	}
	in, err := h.requests.incoming(r, info, s, createOptions)
	if err != nil {
		return err
	}
	obj, err := s.decodeBody(r, in)
	if err != nil {
		return err
	}
	return h.post(w, r, info, s, in, nil, obj, answer)
}

// post runs the steps of a write for a POST that stores no object of the resource itself (a review or a subresource). It
// answers with the object that act returns, or with a Status of success if act returns none.
func (h *Handler) post(
	w http.ResponseWriter, r *http.Request, info *request.Info, s *served, in incoming, sub *registry.Subresource,
	body registry.Object, act registry.CreateFunc,
) error {
	gvk := s.KindOf(sub)
	result, err := h.o.Writes.Do(r.Context(), write.Request{
		Verb: write.Post, Target: s.Served, Subresource: sub, Namespace: info.Namespace, Name: info.Name, Options: in.options,
		Make: func(context.Context, *write.Current) (registry.Object, error) { return body, nil },
		Act:  act,
		Body: &admission.Names{Kind: gvk, Resource: s.GVR},
	})
	if err != nil {
		return err
	}
	// For example, a Binding has no object to return.
	if result.Answer == nil {
		return writeSuccess(w, r, http.StatusCreated, in.accepted, &metav1.Status{Code: http.StatusCreated})
	}
	if o, ok := result.Answer.(metav1.ObjectMetaAccessor); ok && in.accepted.As == negotiate.PartialMetadata {
		if meta, ok := o.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return writePartial(w, r, http.StatusCreated, in.accepted, meta)
		}
	}
	result.Answer.GetObjectKind().SetGroupVersionKind(gvk)
	return writeTyped(
		w, r, http.StatusCreated, in.accepted, wire.NewEnvelopeHead(gvk.GroupVersion().String(), gvk.Kind), result.Answer,
	)
}
