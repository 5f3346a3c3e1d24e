package rest

import (
	"context"
	"net/http"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/api/write"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// create stores a new object.
func (h *Handler) create(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	in, err := h.requests.incoming(r, info, s, createOptions)
	if err != nil {
		return err
	}
	result, err := h.o.Writes.Do(r.Context(), write.Request{
		Verb: write.Create, Target: s.Served, Namespace: info.Namespace, Options: in.options,
		Make: func(context.Context, *write.Current) (registry.Object, error) { return s.decodeBody(r, in) },
	})
	if err != nil {
		return err
	}
	return h.answers.result(w, r, s, http.StatusCreated, in.accepted, result.Result)
}

// result responds to a write with the object that it has stored.
func (a answers) result(
	w http.ResponseWriter, r *http.Request, s *served, code int, accepted negotiate.Accepted, result registry.Result,
) error {
	if code == http.StatusCreated {
		a.created(r, s.Served, result.Object)
	}
	item, err := s.Resource.Renderer.ResultJSON(r.Context(), result, s.Version)
	if err != nil {
		return err
	}
	return a.object(w, r, s, code, accepted, view{o: result.Object, item: item})
}

// codeOf is the status of an update or patch that succeeded.
func codeOf(result write.Result) int {
	if result.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}
