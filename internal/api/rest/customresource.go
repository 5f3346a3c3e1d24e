package rest

import (
	"net/http"
	"slices"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// A CustomResource is one version of a custom resource as the handler serves it.
type CustomResource struct {
	h *Handler
	s *served
}

// Bind returns the handler of a version of a kind without a Go type. It refuses new objects while creates is
// closed, which means that the definition is being deleted.
func (h *Handler) Bind(r *registry.Resource, v *registry.Version, creates *registry.Gate) *CustomResource {
	s := newServed(registry.NewServed(r, v))
	s.Creates = creates
	return &CustomResource{h: h, s: s}
}

// Served returns the resource that c serves.
func (c *CustomResource) Served() *registry.Served { return c.s.Served }

// Unbind drops the data that the handler keeps for c. Requests may still use c.
func (c *CustomResource) Unbind() { c.h.o.Writes.Forget(c.s.Served) }

// Serve serves a request for the resource and version with the right scope, or returns the error for the response; then
// nothing was written. The request's Info must be in its context.
func (c *CustomResource) Serve(w http.ResponseWriter, r *http.Request) error {
	info := request.InfoFrom(r.Context())
	if c.s.Version.Warning != "" {
		request.Warn(r.Context(), c.s.Version.Warning)
	}
	verb, err := c.verb(info)
	if err != nil {
		return err
	}
	return c.h.serve(w, r, c.s, verb)
}

// verb returns the function for the verb of a request on the resource or on one of its subresources. It does not
// check the rest of the path; only guarded checks that there is a name if the verb needs one.
func (c *CustomResource) verb(info *request.Info) (verbFunc, error) {
	if info.Subresource == "" {
		if verb := verbs[info.Verb]; verb != nil {
			return c.guarded(info, verb), nil
		}
		return nil, kerrors.NewMethodNotSupported(c.s.gr, info.Verb)
	}
	sub := c.s.Kind.Subresource(info.Subresource)
	// A subresource that the definition declares comes before a hidden one of the same name.
	switch verb := c.s.hiddenVerb(info); {
	case sub == nil && verb != nil:
		return verb, nil
	case sub == nil:
		return nil, kerrors.NewNotFound(c.s.gr, info.Name)
	case !slices.Contains(sub.Verbs, info.Verb):
		return nil, kerrors.NewMethodNotSupported(c.s.gr, info.Verb)
	}
	return c.s.verbOf(sub, info.Verb), nil
}

// needsName are the verbs of one object. kube-apiserver serves custom resources without a router, so such a path
// is found and its name is missing. Built-in kinds answer 405 (allows).
var needsName = []string{"get", "update", "patch", "delete"}

// guarded returns verb, or a function that returns the error if verb needs a name and the path has none.
func (c *CustomResource) guarded(info *request.Info, verb verbFunc) verbFunc {
	if info.Name == "" && slices.Contains(needsName, info.Verb) {
		return func(h *Handler, _ http.ResponseWriter, r *http.Request, _ *request.Info, s *served) error {
			// kube-apiserver checks the type of a patch first, so a wrong type gets 415 and not 400.
			if info.Verb == "patch" {
				if _, err := h.requests.patchTypeOf(r, s); err != nil {
					return err
				}
			}
			return kerrors.NewBadRequest("name must be provided")
		}
	}
	return verb
}
