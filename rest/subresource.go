package rest

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
	"github.com/keelson-dev/keelson/rest/negotiate"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/scheme/wire"
)

// subresourceVerb finds what serves a request on a subresource.
func (s *served) subresourceVerb(r *http.Request, info *request.Info) (verbFunc, error) {
	sub := s.Kind.Subresource(info.Subresource)
	if sub == nil || info.Rest != "" && !takesPath(sub) {
		return nil, apierr.PathNotFound()
	}
	verb := info.Verb
	if r.Method == http.MethodHead || r.Method == http.MethodOptions || !hasVerb(sub, verb) {
		return nil, apierr.PathMethodNotAllowed()
	}
	return s.verbOf(sub, verb), nil
}

// scaleVerbs are the verbs of the scale subresource.
var scaleVerbs = map[string]verbFunc{"get": (*Handler).getScale, "update": (*Handler).updateScale, "patch": (*Handler).patchScale}

// verbOf is what serves a verb that the subresource has.
func (s *served) verbOf(sub *registry.Subresource, verb string) verbFunc {
	switch {
	case sub.Unserved:
		return (*Handler).unserved
	case sub.Create != nil:
		return (*Handler).createSubresource
	case sub.Scale != nil:
		return scaleVerbs[verb]
	}
	return verbs[verb]
}

// takesPath says that what follows the subresource belongs to it.
func takesPath(sub *registry.Subresource) bool { return sub.Name == "proxy" }

func hasVerb(sub *registry.Subresource, verb string) bool {
	for _, v := range sub.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// unserved answers for subresources that discovery lists but this server does not
// serve yet.
func (h *Handler) unserved(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	if _, err := s.read(r, info); err != nil {
		return err
	}
	return notServed(info.Resource + "/" + info.Subresource)
}

func notServed(what string) error {
	return apierr.New(http.StatusNotImplemented, metav1.StatusReason("NotImplemented"), fmt.Sprintf("%s is not served by this version of the server", what))
}

// virtualVerb serves a kind without stored objects.
func (s *served) virtualVerb(verb string) verbFunc {
	if verb == "create" {
		if sub := s.Kind.Subresource(""); sub != nil {
			return (*Handler).createVirtual
		}
		return (*Handler).answer
	}
	return func(_ *Handler, _ http.ResponseWriter, _ *http.Request, info *request.Info, _ *served) error {
		return notServed(info.Resource)
	}
}

// createVirtual serves POST of a virtual kind (bindings): the object's name is in
// the body.
func (h *Handler) createVirtual(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	return h.postTo(w, r, info, s, s.Kind.Subresource(""), "")
}

// createSubresource serves POST on a subresource (binding, eviction).
func (h *Handler) createSubresource(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	return h.postTo(w, r, info, s, s.Kind.Subresource(info.Subresource), info.Name)
}

func (h *Handler) postTo(w http.ResponseWriter, r *http.Request, info *request.Info, s *served, sub *registry.Subresource, name string) error {
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
	obj, err := decodeWith(s.subDecoder(sub, sub.New, internalNames[s.kindOf(sub).GroupKind()]), nil, r, media, body, o.validation)
	if err != nil {
		return err
	}
	if name == "" {
		name = obj.GetName()
	}
	a := h.admits(s, info.Namespace, name, info.Subresource, o.dryRun)
	if err := a.mutate(r.Context(), obj, nil); err != nil {
		return err
	}
	out, err := sub.Create(r.Context(), h.o.Registry, registry.CreateRequest{
		Namespace: info.Namespace, Name: name, Body: obj, DryRun: o.dryRun, FieldManager: o.manager,
	})
	if err != nil {
		return err
	}
	gvk := s.kindOf(sub)
	if out == nil {
		status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
		return writeTyped(w, r, http.StatusCreated, negotiate.Accepted{Media: accepted.Media, Pretty: accepted.Pretty}, statusProto, status)
	}
	out.GetObjectKind().SetGroupVersionKind(gvk)
	return writeTyped(w, r, http.StatusCreated, accepted, wire.NewEnvelopeHead(gvk.GroupVersion().String(), gvk.Kind), out)
}

// kindOf is the kind that a subresource takes.
func (s *served) kindOf(sub *registry.Subresource) schema.GroupVersionKind {
	if sub.GVK.Kind == "" {
		return s.gvk
	}
	if sub.GVK.Version == "" {
		return schema.GroupVersionKind{Group: s.gvk.Group, Version: s.gvk.Version, Kind: sub.GVK.Kind}
	}
	return sub.GVK
}

// internalNames are the names of the reference's internal types, for messages
// about a body of the wrong kind.
var internalNames = map[schema.GroupKind]string{
	{Group: "", Kind: "Binding"}:                           "core.Binding",
	{Group: "policy", Kind: "Eviction"}:                    "policy.Eviction",
	{Group: "autoscaling", Kind: "Scale"}:                  "autoscaling.Scale",
	{Group: "authentication.k8s.io", Kind: "TokenRequest"}: "authentication.TokenRequest",
}

func (s *served) subDecoder(sub *registry.Subresource, make func() registry.Object, internal string) scheme.Decoder {
	return scheme.Decoder{GVK: s.kindOf(sub), Internal: internal, Also: sub.Also, New: func() runtime.Object { return make() }}
}
