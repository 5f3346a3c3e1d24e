package rest

import (
	"fmt"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// update replaces an object, or the part of it that a subresource stands for.
func (h *Handler) update(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	sub := s.Kind.Subresource(info.Subresource)
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
	o, err := parseWriteOptions(r, "UpdateOptions", "")
	if err != nil {
		return err
	}
	sent, err := s.decodeBody(r, media, body, o.validation)
	if err != nil {
		return err
	}
	if err := checkName(sent, info); err != nil {
		return err
	}
	first := true
	options := h.updateOptions(info, s, sub, o)
	options.CheckUID = true
	result, err := s.Update(r.Context(), info.Namespace, info.Name, options, h.admitted(r.Context(), info, s, o, func(c *registry.Current) (registry.Object, error) {
		obj := sent
		if !first {
			// A second try begins with what was sent, untouched by the first.
			if obj, err = s.decodeBody(r, media, body, o.validation); err != nil {
				return nil, err
			}
		}
		first = false
		var live registry.Object
		if c.Exists() {
			if live, err = c.As(s.version); err != nil {
				return nil, err
			}
		}
		if obj, err = h.own(s, info.Subresource, live, obj, o.manager); err != nil {
			return nil, err
		}
		return s.ToStorage(obj, s.version)
	}))
	if err != nil {
		return err
	}
	code := http.StatusOK
	if result.Created {
		code = http.StatusCreated
	}
	return h.writeResult(w, r, s, code, accepted, result)
}

// checkName holds the name and namespace in the body against the URL.
func checkName(obj registry.Object, info *request.Info) error {
	switch name := obj.GetName(); {
	case name == "":
		return kerrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", info.Name))
	case name != info.Name:
		return kerrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, info.Name))
	}
	if ns := obj.GetNamespace(); ns != "" && ns != info.Namespace && info.Namespace != "" && info.Resource != "namespaces" {
		return kerrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}
