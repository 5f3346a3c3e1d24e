package rest

import (
	"context"
	"net/http"
	"strconv"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	// blamePage is how many versions are read at a time: often the first ones are enough.
	blamePage = 50
	// maxBlameVersions and maxBlameBytes bound the versions that one answer compares, and the bytes of their stored values.
	maxBlameVersions, maxBlameBytes = 5_000, 64 << 20
)

// blame responds with the change that gave each field of an object its value. Values are shown only if the request
// asks for them.
func (h *Handler) blame(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	if info.Rest != "" || info.Name == "" {
		return apierr.PathNotFound()
	}
	ctx := r.Context()
	// All permissions are checked before the first version is read, so that the answer does not tell whether the
	// object exists.
	if err := h.past.mayRead(ctx, info, info.Namespace); err != nil {
		return err
	}
	values := queryValue(r, "values") == "true"
	if values { // a get of the object shows the values
		if err := h.past.may(ctx, "get", info, info.Namespace); err != nil {
			return err
		}
	}
	since, err := h.past.since(ctx, s, info)
	if err != nil {
		return err
	}
	b := &blaming{h: h, s: s, r: r, info: info, since: since}
	b.found.Hold = func(bytes int) error { return hold(r, bytes) }
	if asOf := queryValue(r, history.AsOf); asOf != "" {
		revision, err := h.past.revisionOf(ctx, s, info, asOf)
		if err != nil {
			return err
		}
		if _, err := h.past.at(ctx, s, info, revision); err != nil {
			return err
		}
		b.before = revision + 1
	}
	if err := b.read(ctx); err != nil {
		return err
	}
	if b.first == nil {
		return kerrors.NewNotFound(s.gr, info.Name)
	}
	answer := b.found.Answer(values)
	answer.TypeMeta = metav1.TypeMeta{Kind: "ObjectBlame", APIVersion: history.APIVersion}
	answer.UID, answer.Deletion, answer.NotExamined = b.first.UID, b.deletion, b.notExamined
	answer.ResourceVersion = b.first.ResourceVersion
	return writeAnswer(w, r, answer)
}

// blaming reads the versions of an object from the newest to the oldest, as far as they are needed.
type blaming struct {
	h           *Handler
	s           *served
	r           *http.Request
	info        *request.Info
	since       int64 // the user may not read earlier revisions
	before      int64 // the versions before this revision are next; 0 means all
	found       history.Blame
	first       *history.Change // the change that made the version whose fields are asked for
	deletion    *history.Change
	notExamined string

	versions, bytes, held int
}

// read reads pages of versions until the origin of every field is known, or a limit is reached. The limits are
// checked after each page, so the last page may exceed them.
func (b *blaming) read(ctx context.Context) error {
	if err := hold(b.r, registry.MemoryOfChanges); err != nil {
		return err
	}
	for {
		changes, more, err := b.s.Resource.Past.Changes(ctx, b.info.Namespace, b.info.Name, b.before, blamePage)
		if err != nil || len(changes) == 0 {
			return err
		}
		if err := b.hold(changes); err != nil {
			return err
		}
		goesOn, err := b.add(ctx, changes, more)
		if err != nil || !goesOn || !more {
			return err
		}
		if b.versions > maxBlameVersions || b.bytes > maxBlameBytes {
			b.notExamined = "Changes before resourceVersion " + strconv.FormatInt(b.before, 10) + " were not examined."
			return nil
		}
	}
}

// hold counts the memory for two decoded versions (the first and one other), and for one batch of a conversion
// webhook.
func (b *blaming) hold(changes []registry.PastChange) error {
	largest, all := sizes(changes)
	need := 2 * registry.DecodedMemory * largest
	if b.s.Resource.Renderer.IsPrepared() {
		need += registry.DecodedMemory*min(all, batchBytes+largest) + 2*all
	}
	b.versions, b.bytes = b.versions+len(changes), b.bytes+all
	more := need - b.held
	if more <= 0 {
		return nil
	}
	b.held = need
	return hold(b.r, more)
}

// add compares changes with those that were added before, and reports whether older ones are needed. If there is a
// next page, it leaves out the last change: the next page begins with it, because only the version before it shows
// what it changed.
func (b *blaming) add(ctx context.Context, changes []registry.PastChange, more bool) (goesOn bool, err error) {
	converting := &conversions{s: b.s, changes: changes}
	after := converting.decode(ctx, 0)
	for i := range changes {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if changes[i].Revision < b.since {
			return false, nil
		}
		if more && i > 0 && i == len(changes)-1 {
			return true, nil // the next page begins with it
		}
		before := history.Object{}
		if i+1 < len(changes) {
			before = converting.decode(ctx, i+1)
		}
		c := history.Describe(&changes[i], after, before)
		c.Changed, c.MoreChanged = nil, 0
		goesOn, err := b.addOne(&c, after)
		if err != nil || !goesOn {
			return false, err
		}
		after, b.before = before, changes[i].Revision
	}
	return true, nil
}

// addOne adds a version of the object. goesOn is false at a version that cannot be read or belongs to another object of the
// name: earlier versions say nothing about this object.
func (b *blaming) addOne(c *history.Change, version history.Object) (goesOn bool, err error) {
	switch {
	// The object is deleted now. The answer is about its last version, and names the deletion too.
	case b.first == nil && b.deletion == nil && (c.Type == history.Deleted || c.Type == history.Expired):
		b.deletion = c
		return true, nil
	// Without the newest version there is nothing to explain. An older one would only shorten the answer.
	case b.first == nil && version.JSON == nil && c.Type != history.Deleted && c.Type != history.Expired:
		return false, kerrors.NewInternalError(version.Err)
	case version.JSON == nil, b.first != nil && c.UID != b.first.UID:
		return false, nil
	}
	if b.first == nil {
		b.first = c
	}
	var object map[string]any
	if err := kjson.Unmarshal(version.JSON, &object); err != nil {
		return false, err
	}
	return b.found.Add(object, c)
}

// sizes returns the bytes of the largest of the versions, and of all.
func sizes(changes []registry.PastChange) (largest, all int) {
	for i := range changes {
		n := changes[i].Size()
		largest, all = max(largest, n), all+n
	}
	return largest, all
}
