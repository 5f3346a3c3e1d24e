package rest

import (
	"net/http"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// blockers responds with the reasons for which an object is stuck. It shows the metadata and the conditions of the
// object, no other values.
func (h *Handler) blockers(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	if info.Rest != "" || info.Name == "" || h.o.Blockers == nil {
		return apierr.PathNotFound()
	}
	// Memory is counted before it is used: the finder reads further objects and changes.
	if err := hold(r, registry.MemoryOfChanges); err != nil {
		return err
	}
	found, err := s.latest(r.Context(), info)
	if err != nil {
		return err
	}
	o, err := s.Resource.Reader.Readable(r.Context(), found)
	if err != nil {
		return h.unreadable.explainRead(r.Context(), s, found, err)
	}
	answer, err := h.o.Blockers.Find(r.Context(), info, s.Served, o)
	if err != nil {
		return err
	}
	return writeAnswer(w, r, answer)
}
