package changes

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/api/history"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

const (
	// defaultSince is how far a list without since goes back.
	defaultSince = time.Hour

	defaultLimit, maxLimit = 200, 1000
	// maxExamined limits the revisions that a list reads, and maxDecoded the changes whose objects it decodes.
	// Therefore a response may have a continue token although it has fewer changes than the limit.
	maxExamined, maxDecoded = 20_000, 2 * maxLimit
	// listBytes limits the bytes of the objects that a list decodes; watchBytes limits what a watch decodes before
	// it sends the result. A byte of a path of a changed field counts as pathCost bytes, because paths stay in
	// memory until the client has read them.
	listBytes, watchBytes, pathCost = 32 << 20, 2 << 20, 8
)

// feed is a request for changes.
type feed struct {
	h         *Handler
	namespace string
	labels    labels.Selector
	fields    fields.Requirements
	resources map[schema.GroupResource]*directory.Resource

	limit int
	// newest is set to read the newest changes first.
	newest bool
	after  int64     // the last revision that was read; with newest, the feed has only changes after it
	since  time.Time // earlier changes are left out; it is zero after the first call of next
	// before and through are used with newest. before is the last revision that was read, and through the revision
	// of the store when the first part was read. Both are 0 until then.
	before, through int64
	budget          budget
	// hold counts bytes of memory for the user. It is nil for a watch, because few watches decode at a time. held
	// is the number of bytes that are counted for decoding.
	hold func(n int) bool
	held int
}

// budget is how many more revisions a feed may examine, and how many more changes and bytes it may decode, before it answers.
type budget struct{ examine, decode, bytes int }

// used reports whether at least one of the three numbers is used up.
func (b *budget) used() bool { return b.examine <= 0 || b.decode <= 0 || b.bytes <= 0 }

// open returns the feed that a request asks for.
func (h *Handler) open(r *http.Request, info *request.Info) (*feed, error) {
	f := &feed{h: h, namespace: info.Namespace, limit: defaultLimit, budget: budget{maxExamined, maxDecoded, listBytes}}
	if err := f.parse(r, info); err != nil {
		return nil, err
	}
	first, err := h.firstRevision(r.Context(), info)
	if err != nil {
		return nil, err
	}
	f.after, f.resources = min(max(f.after, first-1), math.MaxInt64-1), h.index()
	return f, nil
}

func (f *feed) parse(r *http.Request, info *request.Info) (err error) {
	query := r.URL.Query()
	if f.labels, err = request.ServedLabels(r.Context(), query.Get("labelSelector")); err != nil {
		return apierr.Selector(fmt.Errorf("unable to parse labelSelector: %w", err))
	}
	selector, err := request.ServedFields(r.Context(), query.Get("fieldSelector"))
	if err != nil {
		return apierr.Selector(fmt.Errorf("unable to parse fieldSelector: %w", err))
	}
	f.fields = selector.Requirements()
	for _, q := range f.fields {
		if _, ok := fieldOf(&history.ObjectChange{}, q.Field); !ok {
			return kerrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", q.Field))
		}
	}
	if text := query.Get("limit"); text != "" {
		if f.limit, err = strconv.Atoi(text); err != nil || f.limit < 1 {
			return kerrors.NewBadRequest("invalid limit " + strconv.Quote(text))
		}
		f.limit = min(f.limit, maxLimit)
	}
	if text := query.Get("newestFirst"); text != "" {
		if f.newest, err = strconv.ParseBool(text); err != nil {
			return kerrors.NewBadRequest("invalid newestFirst " + strconv.Quote(text))
		}
		if f.newest && info.Verb == "watch" {
			return kerrors.NewBadRequest("a watch has the oldest change first")
		}
	}
	if next := query.Get("continue"); next != "" {
		return f.resume(next)
	}
	since := query.Get("since")
	switch version := query.Get("resourceVersion"); {
	case since == "" && info.Verb == "watch" && (version == "" || version == "0"):
		f.after, err = f.h.o.Store.Revision(r.Context())
		return err
	case since == "" && info.Verb == "watch":
		since = version
	case since == "":
		since = defaultSince.String()
	}
	if revision, e := strconv.ParseUint(since, 10, 63); e == nil {
		f.after = int64(revision)
		return nil
	}
	f.since, err = history.ParseTime("since", since, f.h.o.Now())
	return err
}

// token returns the continue token after what was read.
func (f *feed) token() string {
	if f.newest {
		return fmt.Sprintf("%d.%d.%d", f.before, f.after, f.through)
	}
	return strconv.FormatInt(f.after, 10)
}

// resume sets the position of the feed from a continue token. The token must be one of a feed of the same order.
func (f *feed) resume(token string) error {
	parts := []*int64{&f.after}
	if f.newest {
		parts = []*int64{&f.before, &f.after, &f.through}
	}
	texts := strings.Split(token, ".")
	if len(texts) != len(parts) {
		return kerrors.NewBadRequest("invalid continue token")
	}
	for i, text := range texts {
		n, err := strconv.ParseUint(text, 10, 63)
		if *parts[i] = int64(n); err != nil || n == 0 && parts[i] != &f.after || n == 0 && !f.newest {
			return kerrors.NewBadRequest("invalid continue token")
		}
	}
	return nil
}

// revision returns the revision up to which changes were read. A watch can start from it.
func (f *feed) revision() int64 {
	if f.newest {
		return f.through
	}
	return f.after
}

// fieldOf returns the value of a field that a field selector may name.
func fieldOf(c *history.ObjectChange, name string) (value string, ok bool) {
	switch name {
	case "group":
		return c.Group, true
	case "resource":
		return c.Resource, true
	case "namespace", "metadata.namespace":
		return c.Namespace, true
	case "name":
		return c.Name, true
	case "type":
		return string(c.Type), true
	case "uid":
		return string(c.UID), true
	case "user":
		return c.User, true
	case "verb":
		return c.Verb, true
	case "fieldManager":
		return c.FieldManager, true
	}
	return "", false
}

// index returns the served resources by group and name, each in its preferred version.
func (h *Handler) index() map[schema.GroupResource]*directory.Resource {
	index := map[schema.GroupResource]*directory.Resource{}
	for _, gv := range h.o.Resources.GroupVersions() {
		for _, r := range h.o.Resources.Resources(gv) {
			before := index[r.GVR.GroupResource()]
			if before == nil || apiversion.CompareKubeAwareVersionStrings(r.GVR.Version, before.GVR.Version) > 0 {
				index[r.GVR.GroupResource()] = r
			}
		}
	}
	return index
}

// next returns further changes of at least one revision. It returns at most room changes, or a few more, because
// it never splits the changes of one revision. more is true if there may be others.
func (f *feed) next(ctx context.Context, room int) (list []history.ObjectChange, more bool, err error) {
	asked := storage.ChangesRequest{
		Prefix: registry.Root, After: f.after, Since: f.since, Limit: f.limit, KeysOnly: true, Examine: max(f.budget.examine, 1),
		Backwards: f.newest,
	}
	read := &f.after
	if f.newest {
		if f.through == 0 {
			if f.through, err = f.h.o.Store.Revision(ctx); err != nil {
				return nil, false, err
			}
			f.before = f.through + 1
		}
		if asked.Through, read = f.before-1, &f.before; asked.Through <= f.after {
			return nil, false, nil // for example if f.after is a revision of the future
		}
	}
	found, err := f.h.o.Store.Changes(ctx, asked)
	if err != nil {
		return nil, false, err
	}
	f.budget.examine -= found.Examined
	f.since, f.after = time.Time{}, found.After
	for i := range found.Changes {
		c := &found.Changes[i]
		full := len(list) >= room || f.budget.decode <= 0 || f.budget.bytes <= 0
		if full && i > 0 && c.Entry.ModRevision != *read {
			return list, true, nil
		}
		*read = c.Entry.ModRevision
		if list, err = f.appendChange(ctx, list, c); err != nil {
			return nil, false, err
		}
	}
	*read = found.Through
	return list, found.More, nil
}

// describe sets those fields for field selectors that are known without decoding the object, and returns the names
// of the other ones. Only a change whose time is known has a known author.
func describe(out *history.ObjectChange, c *storage.Change) (unknown []string, err error) {
	if c.Time.IsZero() {
		return []string{"type", "uid", "user", "verb", "fieldManager"}, nil
	}
	author, err := registry.DecodeAuthor(c.By)
	out.User, out.Verb, out.FieldManager = author.User, author.Verb, author.Manager
	if !c.Deleted {
		return []string{"type", "uid"}, err
	}
	if out.Type = history.Deleted; author.Verb == "" {
		out.Type = history.Expired
	}
	return []string{"uid"}, err
}

// appendChange appends a change to list if its resource is served, it is in the namespace of the feed, and the
// selectors match.
func (f *feed) appendChange(
	ctx context.Context, list []history.ObjectChange, c *storage.Change,
) ([]history.ObjectChange, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	gr, namespace, name := f.h.o.Registry.ParseKey(c.Entry.Key)
	found := f.resources[gr]
	if found == nil || name == "" || f.namespace != "" && namespace != f.namespace {
		return list, nil
	}
	out := history.ObjectChange{
		TypeMeta: metav1.TypeMeta{Kind: "Change", APIVersion: history.APIVersion},
		Group:    gr.Group, Version: found.GVR.Version, Resource: gr.Resource, Namespace: namespace, Name: name,
	}
	if len(f.fields) > 0 { // most changes that are not selected are left out without decoding
		unknown, err := describe(&out, c)
		if err != nil {
			return nil, err
		}
		for _, q := range f.fields {
			if !slices.Contains(unknown, q.Field) && !holds(q, &out) {
				return list, nil
			}
		}
	}
	served, done, err := found.Open(ctx)
	if kerrors.IsNotFound(err) {
		return list, nil // its definition has just gone
	}
	if err != nil {
		return nil, err
	}
	defer done()
	// Read the change and the one before it. Their difference is what has changed.
	revision := c.Entry.ModRevision
	versions, _, err := served.Resource.Past.Changes(ctx, namespace, name, revision+1, 2)
	if err != nil || len(versions) == 0 || versions[0].Revision != revision {
		return list, err // a nil error means that the history has just dropped the change
	}
	size := 0
	for i := range versions {
		size += versions[i].Size()
	}
	f.budget.decode--
	f.budget.bytes -= size
	if more := registry.DecodedMemory*size - f.held; more > 0 && f.hold != nil {
		if !f.hold(more) {
			return nil, apierr.TooManyUnread()
		}
		f.held += more
	}
	// The feed must not wait for the conversion webhook of a definition.
	after, before := history.DecodeWritten(ctx, served, &versions[0]), history.Object{}
	if len(versions) == 2 {
		before = history.DecodeWritten(ctx, served, &versions[1])
	}
	if !f.labels.Empty() && !f.labels.Matches(after.Labels()) && !f.labels.Matches(before.Labels()) {
		return list, nil
	}
	out.Change, out.Version = history.Describe(&versions[0], after, before), cmp.Or(after.Version(), before.Version(), out.Version)
	for _, path := range out.Changed {
		f.budget.bytes -= pathCost * len(path)
	}
	for _, q := range f.fields {
		if !holds(q, &out) {
			return list, nil
		}
	}
	out.Metadata = history.ChangeMetadata{
		Name: fmt.Sprintf("%d.%s.%s", revision, gr, name), Namespace: namespace, ResourceVersion: out.ResourceVersion,
	}
	if out.Time != nil {
		out.Metadata.CreationTimestamp = &metav1.Time{Time: out.Time.Time}
	}
	return append(list, out), nil
}

// holds reports whether a change meets one requirement of a field selector.
func holds(q fields.Requirement, c *history.ObjectChange) bool {
	value, _ := fieldOf(c, q.Field)
	return (q.Operator == selection.NotEquals) != (value == q.Value)
}
