package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// subresourceVerb returns the function that serves a request on a subresource.
func (s *served) subresourceVerb(r *http.Request, info *request.Info) (verbFunc, error) {
	sub := s.Kind.Subresource(info.Subresource)
	// A declared subresource comes before a hidden one of the same name.
	if verb := s.hiddenVerb(info); sub == nil && verb != nil {
		return verb, nil
	}
	if sub == nil || info.Rest != "" && !takesPath(sub) {
		return nil, apierr.PathNotFound()
	}
	switch {
	// A connection is routed by its method and not by a verb: a proxy forwards any method, a log only GET.
	case sub.Connect != nil:
		if !sub.Connect.Allows(r.Method) {
			return nil, apierr.PathMethodNotAllowed()
		}
		return (*Handler).connect, nil
	case r.Method == http.MethodHead, r.Method == http.MethodOptions, !slices.Contains(sub.Verbs, info.Verb):
		return nil, apierr.PathMethodNotAllowed()
	}
	return s.verbOf(sub, info.Verb), nil
}

// scaleVerbs are the verbs of the scale subresource.
var scaleVerbs = map[string]verbFunc{
	"get": (*Handler).getScale, "update": (*Handler).updateScale, "patch": (*Handler).patchScale,
}

// verbOf returns the function for a verb of the subresource.
func (s *served) verbOf(sub *registry.Subresource, verb string) verbFunc {
	switch {
	case sub.New != nil:
		return (*Handler).createSubresource
	case sub.Scale != nil:
		return scaleVerbs[verb]
	}
	return verbs[verb]
}

// takesPath reports whether the rest of the path belongs to the subresource. For example, "a/b" in
// .../services/s/proxy/a/b.
func takesPath(sub *registry.Subresource) bool { return sub.Connect != nil && sub.Connect.TakesPath }

func notServed(what string) error {
	return apierr.New(
		http.StatusNotImplemented, metav1.StatusReason("NotImplemented"),
		fmt.Sprintf("%s is not served by this version of the server", what),
	)
}

// virtualVerb returns the function for a verb of a kind without stored objects.
func (h *Handler) virtualVerb(s *served, verb string) verbFunc {
	if h.o.Computed[s.gr] != nil {
		return computedVerbs[verb]
	}
	if verb == "create" {
		if sub := s.Kind.Subresource(""); sub != nil {
			return (*Handler).createSubresource
		}
		return (*Handler).answer
	}
	return func(_ *Handler, _ http.ResponseWriter, _ *http.Request, info *request.Info, _ *served) error {
		return notServed(info.Resource)
	}
}

// createSubresource serves a POST to a subresource (binding, eviction, token). It also serves a POST of a virtual
// kind whose object has its name in the body (bindings).
func (h *Handler) createSubresource(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	sub := s.Kind.Subresource(info.Subresource)
	create := sub.Create
	if create == nil {
		create = h.o.Answers[schema.GroupResource{Group: s.gr.Group, Resource: s.gr.Resource + "/" + sub.Name}]
	}
	if create == nil {
		return notServed(info.Resource + "/" + info.Subresource)
	}
	return h.postTo(w, r, info, s, sub, create)
}

// postTo reads the body of a POST to a subresource, which has a kind of its own, such as a Binding for a pod.
func (h *Handler) postTo(
	w http.ResponseWriter, r *http.Request, info *request.Info, s *served, sub *registry.Subresource,
	create registry.CreateFunc,
) error {
	in, err := h.requests.incoming(r, info, s, createOptions)
	if err != nil {
		return err
	}
	gvk := s.KindOf(sub)
	obj, err := decodeWith(s.subDecoder(sub, sub.New, internalNames[gvk.GroupKind()]), r, in)
	if err != nil {
		return err
	}
	noteSent(r, gvk, obj)
	if sub.Default != nil {
		sub.Default(obj)
	}
	return h.post(w, r, info, s, in, sub, obj, create)
}

// internalNames are the names of kube-apiserver's internal types, for messages
// about a body of the wrong kind.
var internalNames = map[schema.GroupKind]string{
	{Group: "", Kind: "Binding"}:                           "core.Binding",
	{Group: "policy", Kind: "Eviction"}:                    "policy.Eviction",
	{Group: "autoscaling", Kind: "Scale"}:                  "autoscaling.Scale",
	{Group: "authentication.k8s.io", Kind: "TokenRequest"}: "authentication.TokenRequest",
}

func (s *served) subDecoder(sub *registry.Subresource, make func() registry.Object, internal string) scheme.Decoder {
	return scheme.Decoder{
		GVK: s.KindOf(sub), Internal: internal, Also: sub.Also, New: func() runtime.Object { return make() },
	}
}

// hiddenVerbs are the functions of the hidden subresources. Every stored object has these subresources, such as
// history, but discovery does not show them (see package request).
var hiddenVerbs = map[string]verbFunc{
	request.SubresourceHistory: (*Handler).history, request.SubresourceBlockers: (*Handler).blockers,
	request.SubresourceBlame: (*Handler).blame, request.SubresourceUndelete: (*Handler).undelete, request.SubresourceRevert: (*Handler).revert,
}

// hiddenVerb returns the function for a GET of a hidden subresource. It returns nil for other requests.
func (s *served) hiddenVerb(info *request.Info) verbFunc {
	if info.Verb != "get" || s.Resource.Virtual() {
		return nil
	}
	return hiddenVerbs[info.Subresource]
}

// writeAnswer writes an answer that is not an API object of a resource, as JSON. It gives back the memory that was
// counted while the answer was made, and counts the bytes of the answer instead.
func writeAnswer(w http.ResponseWriter, r *http.Request, answer any) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	if apiresponse.WantsPretty(r) {
		body = apiresponse.Indent(body)
	}
	request.ResponseFrom(r.Context()).ReleaseMemory()
	if err := hold(r, len(body)); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(append(body, '\n'))
	return err
}
