package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const defaultHistoryLimit, maxHistoryLimit = 100, 500

// history answers the changes of an object, which may be gone. A Secret's values are shown only if the request asks for objects.
func (h *Handler) history(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	if info.Rest != "" || info.Name == "" {
		return apierr.PathNotFound()
	}
	ctx := r.Context()
	if err := h.mayReadHistory(ctx, info, info.Namespace); err != nil {
		return err
	}
	o, err := parseHistoryOptions(r)
	if err != nil {
		return err
	}
	if o.objects {
		// The objects are what a get of them shows.
		if err := h.may(ctx, "get", info, info.Namespace); err != nil {
			return err
		}
	}
	since, err := h.historySince(ctx, s, info)
	if err != nil {
		return err
	}
	// The memory is counted before it is taken: the versions, then the trees of two of them, and the text of those that are answered.
	if err := hold(r, registry.MemoryOfChanges); err != nil {
		return err
	}
	// One more than are shown, because a change is found by comparing with the version before.
	changes, more, err := s.Changes(ctx, info.Namespace, info.Name, o.before, o.limit+1)
	if err != nil {
		return err
	}
	if len(changes) == 0 || changes[0].Revision < since {
		// That an object had this name before the namespace was made again is not for everybody.
		if o.before > 0 {
			return kerrors.NewResourceExpired("what was before is not kept any more")
		}
		return kerrors.NewNotFound(s.gr, info.Name)
	}
	largest, all := 0, 0
	for i := range changes {
		n := changes[i].Size()
		largest, all = max(largest, n), all+n
	}
	need := 2 * registry.DecodedMemory * largest
	if o.objects {
		need += 3 * all
	}
	if err := hold(r, need); err != nil {
		return err
	}
	answer := history.ObjectHistory{
		TypeMeta: metav1.TypeMeta{Kind: "ObjectHistory", APIVersion: history.APIVersion}, Items: []history.Change{},
	}
	after := history.Decode(ctx, s.Served, &changes[0])
	for i := range changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if changes[i].Revision < since {
			break
		}
		if i == o.limit || more && i == len(changes)-1 {
			answer.Continue = strconv.FormatInt(changes[i-1].Revision, 10)
			break
		}
		before := history.Object{} // only these two are decoded at a time
		if i+1 < len(changes) {
			before = history.Decode(ctx, s.Served, &changes[i+1])
		}
		c := history.Describe(&changes[i], after, before)
		if o.objects && after.JSON != nil {
			c.Object = json.RawMessage(after.JSON)
		}
		if after = before; o.uid == "" || c.UID == o.uid {
			answer.Items = append(answer.Items, c)
		}
	}
	return writeAnswer(w, r, &answer)
}

// historySince returns the revision from which on the user may read the past in the namespace of the request: the creation of its namespace, or 0 for
// a user who may read the history of all namespaces.
//
// If the revisions of the resource and of namespaces cannot be compared, no other user may read the past. It may be the
// past of an earlier namespace with the same name.
func (h *Handler) historySince(ctx context.Context, s *served, info *request.Info) (int64, error) {
	if info.Namespace == "" {
		return 0, nil
	}
	everywhere := h.mayReadHistory(ctx, info, "")
	if everywhere == nil || !h.o.Registry.HasRevisionsOfNamespaces(s.Resource) {
		return 0, everywhere
	}
	since, err := h.o.Registry.NamespaceSince(ctx, info.Namespace)
	if err == nil && since == 0 {
		return 0, h.mayReadHistory(ctx, info, "") // the namespace is gone
	}
	return since, err
}

// historyOptions are the parameters of a request for the history of an object.
type historyOptions struct {
	limit   int
	before  int64 // the continue parameter
	uid     types.UID
	objects bool
}

func parseHistoryOptions(r *http.Request) (o historyOptions, err error) {
	query := r.URL.Query()
	o = historyOptions{limit: defaultHistoryLimit, uid: types.UID(query.Get("uid")), objects: query.Get("objects") == "true"}
	if limit := query.Get("limit"); limit != "" {
		if o.limit, err = strconv.Atoi(limit); err != nil || o.limit < 1 {
			return o, kerrors.NewBadRequest("invalid limit " + strconv.Quote(limit))
		}
		o.limit = min(o.limit, maxHistoryLimit)
	}
	if next := query.Get("continue"); next != "" {
		if o.before, err = strconv.ParseInt(next, 10, 64); err != nil || o.before < 1 {
			return o, kerrors.NewBadRequest("invalid continue token")
		}
	}
	return o, nil
}
