package rest

import (
	"net/http"

	"github.com/keelson-dev/keelson/internal/api/undelete"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
)

// undelete answers how a deleted object comes back, a Namespace or a definition with its content.
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

// revert answers how an object gets the content that it had.
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
