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
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// defaultHistoryLimit and maxHistoryLimit are numbers of changes in one answer. A larger limit in a request is lowered
// without an error, because the answer has a continue token.
const defaultHistoryLimit, maxHistoryLimit = 100, 500

// history responds with the changes of an object, also of a deleted one. Values, such as those of a Secret, are
// shown only if the request asks for objects.
func (h *Handler) history(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	if info.Rest != "" || info.Name == "" {
		return apierr.PathNotFound()
	}
	ctx := r.Context()
	if err := h.past.mayRead(ctx, info, info.Namespace); err != nil {
		return err
	}
	o, err := parseHistoryOptions(r)
	if err != nil {
		return err
	}
	if o.objects {
		// A get shows these objects too, so the user needs the permission for it.
		if err := h.past.may(ctx, "get", info, info.Namespace); err != nil {
			return err
		}
	}
	since, err := h.past.since(ctx, s, info)
	if err != nil {
		return err
	}
	// Memory is counted before it is used: here for reading the versions, and below for two decoded versions at a time
	// and, if the request asks for objects, for their text in the answer.
	if err := hold(r, registry.MemoryOfChanges); err != nil {
		return err
	}
	// Read one version more than are shown: a change is found by comparing a version with the one before.
	changes, more, err := s.Resource.Past.Changes(ctx, info.Namespace, info.Name, o.before, o.limit+1)
	if err != nil {
		return err
	}
	if len(changes) == 0 || changes[0].Revision < since {
		// Not every user may know that an object of an earlier namespace with the same name had this name.
		if o.before > 0 {
			return kerrors.NewResourceExpired("what was before is not kept any more")
		}
		return kerrors.NewNotFound(s.gr, info.Name)
	}
	largest, all := sizes(changes)
	need := 2 * registry.DecodedMemory * largest
	if o.objects {
		need += 3 * all
	}
	if s.Resource.Renderer.IsPrepared() {
		need += registry.DecodedMemory*min(all, batchBytes+largest) + 2*all
	}
	if err := hold(r, need); err != nil {
		return err
	}
	answer := history.ObjectHistory{
		TypeMeta: metav1.TypeMeta{Kind: "ObjectHistory", APIVersion: history.APIVersion}, Items: []history.Change{},
	}
	converting := &conversions{s: s, changes: changes}
	after := converting.decode(ctx, 0)
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
			before = converting.decode(ctx, i+1)
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

// conversions decodes the changes of an object in their order. It lets a conversion webhook convert versions in
// batches, as in a list. One call for each of several hundred versions would take long, and would delay other
// requests that need the webhook.
type conversions struct {
	s       *served
	changes []registry.PastChange
	next    int // the first change that was not in a batch yet
	failed  int // the number of calls that have failed
}

// maxFailedConversions is how many calls of a webhook may fail in one request. After that no smaller batches are tried.
const maxFailedConversions = 8

// decode returns the object after change i.
func (c *conversions) decode(ctx context.Context, i int) history.Object {
	if i >= c.next && c.s.Resource.Renderer.IsPrepared() {
		from, bytes := i, 0
		for c.next = i; c.next < len(c.changes) && c.next-from < lookAt && bytes < batchBytes; c.next++ {
			bytes += c.changes[c.next].Size()
		}
		c.convert(ctx, c.changes[from:c.next])
	}
	return history.Decode(ctx, c.s.Served, &c.changes[i])
}

// convert converts the objects of a batch. If that fails, it tries the halves, because a single version may be the reason. A
// version that cannot be converted gets the error.
func (c *conversions) convert(ctx context.Context, batch []registry.PastChange) {
	var objects []*cache.Object
	for i := range batch {
		if batch[i].Object != nil {
			objects = append(objects, batch[i].Object)
		}
	}
	err := c.s.Resource.Renderer.Prepare(ctx, objects)
	if err == nil {
		return
	}
	if c.failed++; len(objects) > 1 && c.failed < maxFailedConversions && ctx.Err() == nil {
		c.convert(ctx, batch[:len(batch)/2])
		c.convert(ctx, batch[len(batch)/2:])
		return
	}
	for i := range batch {
		if batch[i].Object != nil && !c.s.Resource.Renderer.HasPrepared(batch[i].Object) {
			batch[i].Object, batch[i].Err = nil, err
		}
	}
}

// since returns the first revision at which the user may read the past in the namespace of the request.
func (p past) since(ctx context.Context, s *served, info *request.Info) (int64, error) {
	return p.rights.Since(ctx, s.Resource, info)
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
