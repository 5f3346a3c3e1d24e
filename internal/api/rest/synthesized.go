package rest

import (
	"context"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Computed returns the objects of a kind without stored objects, in the order of a list. If name is not "", it returns
// only the object of that name, or none if it does not exist.
type Computed func(ctx context.Context, name string) ([]registry.Object, error)

// computedVerbs are the verbs of kinds whose objects are computed.
var computedVerbs = map[string]verbFunc{
	"get": (*Handler).getComputed, "list": (*Handler).listComputed, "watch": (*Handler).watchComputed,
}

// getComputed responds with one computed object. Its NotFound error has the singular name of the resource, as
// that of kube-apiserver for a componentstatus.
func (h *Handler) getComputed(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.response(r, info, s)
	if err != nil {
		return err
	}
	objs, err := h.o.Computed[s.gr](r.Context(), info.Name)
	if err != nil {
		return err
	}
	if len(objs) == 0 {
		return kerrors.NewNotFound(schema.GroupResource{Group: s.gr.Group, Resource: s.Kind.SingularName()}, info.Name)
	}
	o, err := s.Resource.Writer.Computed(r.Context(), objs[0])
	if err != nil {
		return err
	}
	return h.answers.object(w, r, s, http.StatusOK, accepted, view{o: o})
}

// listComputed responds with all selected objects. There are no pages and no resource versions.
func (h *Handler) listComputed(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.response(r, info, s)
	if err != nil {
		return err
	}
	options, err := parseListOptions(r)
	if err != nil {
		return err
	}
	if err := options.validate(false); err != nil {
		return err
	}
	sel, err := newSelection(r.Context(), s, info.Namespace, "", options.LabelSelector, options.FieldSelector)
	if err != nil {
		return err
	}
	objs, err := h.o.Computed[s.gr](r.Context(), "")
	if err != nil {
		return err
	}
	// The revision stays 0, so that the list has no resourceVersion: nothing can be watched from it.
	p := &page{}
	for _, obj := range objs {
		o, err := s.Resource.Writer.Computed(r.Context(), obj)
		if err != nil {
			return err
		}
		ok, err := sel.matches(r.Context(), o)
		if err != nil {
			return err
		}
		if ok {
			p.objects = append(p.objects, o)
		}
	}
	return h.answers.list(w, r, s, accepted, p)
}

func (h *Handler) watchComputed(_ http.ResponseWriter, _ *http.Request, _ *request.Info, s *served) error {
	return kerrors.NewMethodNotSupported(s.gr, "watch")
}
