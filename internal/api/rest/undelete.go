package rest

import (
	"net/http"

	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

// undelete answers with an undelete.Plan: what a client has to create to bring back a deleted object. A Namespace
// comes back with its content, and a definition with its objects. The server itself creates nothing.
func (h *Handler) undelete(w http.ResponseWriter, r *http.Request, info *request.Info, _ *served) error {
	if info.Rest != "" || info.Name == "" || h.o.Undelete == nil {
		return apierr.PathNotFound()
	}
	answer, err := h.o.Undelete.Object(r.Context(), info, undelete.OptionsOf(r))
	if err != nil {
		return err
	}
	answer.Serve(w)
	return nil
}

// revert answers with a plan of the update that gives an existing object the content that it had before. The client
// sends the update; the server itself changes nothing.
func (h *Handler) revert(w http.ResponseWriter, r *http.Request, info *request.Info, _ *served) error {
	if info.Rest != "" || info.Name == "" || h.o.Undelete == nil {
		return apierr.PathNotFound()
	}
	answer, err := h.o.Undelete.Revert(r.Context(), info, undelete.OptionsOf(r))
	if err != nil {
		return err
	}
	return writeAnswer(w, r, answer)
}
