package changes

import (
	"fmt"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// searched is the budget of one call of Deletions. It fails if the budget, or maxDeletions, is reached before the
// last change.
var searched = budget{examine: 1_000_000, decode: 20_000, bytes: 256 << 20}

const maxDeletions = 10_000

// Deletions returns the deletions that a request for the feed selects, the oldest first. It fails if there are too many changes to look at.
func (h *Handler) Deletions(r *http.Request, info *request.Info) (list []history.ObjectChange, err error) {
	f, err := h.open(r, info)
	if err != nil {
		return nil, err
	}
	f.fields = append(f.fields, fields.Requirement{Field: "type", Operator: selection.Equals, Value: string(history.Deleted)})
	f.hold = func(n int) bool { return request.HoldMemory(r.Context(), n) }
	if f.held = registry.MemoryOfChanges; !f.hold(f.held) {
		return nil, apierr.TooManyUnread()
	}
	f.newest, f.budget = false, searched
	for more := true; more; {
		if f.budget.used() || len(list) >= maxDeletions {
			return nil, kerrors.NewBadRequest(fmt.Sprintf(
				"there are too many changes to look at: choose a later since; %d deletions were found", len(list)))
		}
		var part []history.ObjectChange
		if part, more, err = f.next(r.Context(), maxLimit); err != nil {
			return nil, err
		}
		for i := range part {
			part[i].Changed = nil
		}
		list = append(list, part...)
	}
	return list, nil
}
