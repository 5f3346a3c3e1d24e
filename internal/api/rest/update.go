package rest

import (
	"context"
	"fmt"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// update replaces an object, or the part of it that a subresource stands for.
func (h *Handler) update(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.requests.incoming(r, info, s, updateOptions)
	if err != nil {
		return err
	}
	sent, err := s.decodeBody(r, in)
	if err != nil {
		return err
	}
	if err := checkName(sent, info); err != nil {
		return err
	}
	first := true
	result, err := h.o.Writes.Do(r.Context(), write.Request{
		Verb: write.Update, Target: s.Served, Subresource: s.Kind.Subresource(info.Subresource),
		Namespace: info.Namespace, Name: info.Name, Options: in.options, CheckUID: true,
		Make: func(context.Context, *write.Current) (registry.Object, error) {
			obj := sent
			if !first {
				// A further attempt begins with the object of the request again, without the changes of the first
				// attempt.
				var err error
				if obj, err = s.decodeBody(r, in); err != nil {
					return nil, err
				}
			}
			first = false
			write.RemoveDuplicateOwners(r.Context(), obj)
			return obj, nil
		},
	})
	if err != nil {
		return err
	}
	return h.answers.result(w, r, s, codeOf(result), in.accepted, result.Result)
}

// checkName returns an error unless the body has the name in the URL. The namespace in the body may be missing, but
// must not differ from the one in the URL.
func checkName(obj registry.Object, info *request.Info) error {
	switch name := obj.GetName(); {
	case name == "":
		return kerrors.NewBadRequest(
			fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", info.Name),
		)
	case name != info.Name:
		return kerrors.NewBadRequest(
			fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, info.Name),
		)
	}
	if ns := obj.GetNamespace(); ns != "" && ns != info.Namespace && info.Namespace != "" &&
		info.Resource != "namespaces" {
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}
