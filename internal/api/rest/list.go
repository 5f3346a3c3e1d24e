package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// list responds with the objects of a collection. The order of the checks is visible: a request with several
// faults gets the error of the first check.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.response(r, info, s)
	if err != nil {
		return err
	}
	options, err := parseListOptions(r)
	if err != nil {
		return err
	}
	sel, err := selectionFor(r.Context(), s, info.Namespace, "", &options, false)
	if err != nil {
		return err
	}
	if s.isReadOnce(accepted, &options) {
		sel.retain = min(sel.retain, streamedFrom)
	}
	page, err := h.page(r, info, s, sel, &options)
	if err == nil {
		err = h.answers.list(w, r, s, accepted, page)
	}
	return h.unreadable.explainList(r.Context(), s, info.Namespace, err)
}

// page is the result of one list request.
type page struct {
	objects   []*cache.Object // of a streamed page, the first ones
	revision  int64
	next      string // continue token
	remaining int64  // 0: unknown or none
	own       bool   // the objects were read for this page alone
	// chunks yields the chunks of the cache's tree that the objects are in; nil if the page has only some objects of them.
	chunks func(yield func(cache.Chunk) bool)
	// once is set before the last call of each. During this call, the page releases each object when it is
	// yielded.
	once bool
	// streamed calls yield for the objects after those in objects, in their order, while it reads them from the store. It is set for a
	// page whose objects are too large to be in memory together.
	streamed func(ctx context.Context, yield func(*cache.Object) error) error
}

// each calls yield for the objects of the page until it returns an error.
func (p *page) each(ctx context.Context, yield func(*cache.Object) error) error {
	for i, o := range p.objects {
		if p.once {
			p.objects[i] = nil
		}
		if err := yield(o); err != nil {
			return err
		}
	}
	if p.streamed != nil {
		return p.streamed(ctx, yield)
	}
	return nil
}

// isEmpty reports whether the page has no objects.
func (p *page) isEmpty() bool { return len(p.objects) == 0 && p.streamed == nil }

// page reads the objects that the options ask for.
func (s *served) page(r *http.Request, sel *selection, o *listOptions) (*page, error) {
	start := time.Now()
	view, token, err := s.viewFor(r.Context(), o)
	if err != nil {
		return nil, expired(err, token)
	}
	if o.ResourceVersion == "" && o.Continue == "" && view.Loaded() {
		s.Resource.Metrics().Fresh(time.Since(start))
	}
	limit := int(max(o.Limit, 0))
	if o.ResourceVersion == "0" && o.Continue == "" {
		// "Any" version comes from the cache as a whole, like in kube-apiserver.
		limit = 0
	}
	p, err := s.readPage(r.Context(), sel, view, token.from(sel), limit)
	return p, expired(err, token)
}

// readPage reads up to limit objects at or above start. The limit 0 means all objects.
func (s *served) readPage(
	ctx context.Context, sel *selection, view *cache.View, start string, limit int,
) (*page, error) {
	began := time.Now()
	p := &page{}
	c := collector{sel: sel, view: view, limit: limit, batch: sel.needsPreparing()}
	err := sel.visit(ctx, view, start, sel.most(limit), func(o *cache.Object) bool { return c.add(ctx, o) })
	if err == nil {
		err = c.finish(ctx)
	}
	p.objects = c.objects
	s.Resource.Metrics().List(view.Loaded(), sel.indexLabel(), began, c.looked, c.chosen)
	if err != nil {
		return nil, err
	}
	p.revision, p.own = view.Revision(), !view.Loaded()
	// The collector stopped retaining objects. The stream begins after the last one that it has, and reads the
	// others again.
	if kept := len(p.objects); c.tooLarge && (limit == 0 || kept < c.chosen) {
		p.streamed = s.streamedPage(sel, view, p.objects[kept-1].Key+"\x00", max(limit-kept, 0))
	}
	if sel.everything() && view.Loaded() && view.Snapshot().Unread() == 0 {
		p.chunks = func(yield func(cache.Chunk) bool) { view.Snapshot().Chunks(start, sel.prefix(), yield) }
	}
	if !c.more {
		return p, nil
	}
	// This is the smallest key after the last one of the page.
	next := c.last + "\x00"
	p.next = continueToken{Revision: p.revision, Start: next[len(sel.prefix()):]}.encode()
	// With a selector, all other objects would have to be compared to count them. ListMeta documents that
	// remainingItemCount is then unset.
	if sel.everything() {
		p.remaining, err = view.Remaining(ctx, sel.prefix(), start, next, c.chosen)
	}
	return p, err
}

// A collector selects the objects of a page from a sequence of objects.
type collector struct {
	sel   *selection
	view  *cache.View
	limit int // 0: none
	// yield gets the chosen objects. If it is nil, they are added to objects, if the cache has them in memory
	// anyway or they take no more than selection.retain.
	yield   func(*cache.Object) error
	objects []*cache.Object
	bytes   int
	// tooLarge is set when the objects take more than selection.retain. From then on objects are counted and not
	// retained. Without a limit, the collector then stops: the rest of the page is streamed.
	tooLarge bool
	chosen   int
	last     string // key of the last chosen object
	// more is set when an object was met beyond the limit. Whether it is selected is not known; the request for the next page
	// finds out.
	more bool
	err  error
	// looked is the number of objects that the collector has received.
	looked int
	// batch collects objects, so that Prepare can be called for lookAt of them before their fields are read.
	batch        bool
	waiting      []*cache.Object
	waitingBytes int
}

// add returns false when the collector wants no more objects. It compares names and labels first, because they
// need no decoding.
func (c *collector) add(ctx context.Context, o *cache.Object) bool {
	if c.full() {
		return false
	}
	c.looked++
	if o, c.err = c.sel.s.Resource.Reader.Readable(ctx, o); c.err != nil {
		return false
	}
	switch {
	case !c.sel.matchesLabels(o):
		return true
	case !c.batch:
		return c.choose(ctx, o)
	}
	c.waiting = append(c.waiting, o)
	c.waitingBytes += len(o.Data)
	return len(c.waiting) < lookAt && c.waitingBytes < batchBytes || c.chooseWaiting(ctx)
}

// full reports whether the page has as many objects as the limit. It is called when there is another object, so it
// also sets more.
func (c *collector) full() bool {
	c.more = c.limit > 0 && c.chosen == c.limit
	return c.more
}

// choose adds an object to the page if its fields match. It returns false when the page is complete.
func (c *collector) choose(ctx context.Context, o *cache.Object) bool {
	var ok bool
	if ok, c.err = c.sel.matchesFields(ctx, o); !ok || c.err != nil {
		return c.err == nil
	}
	c.chosen++
	c.last = o.Key
	switch {
	case c.yield != nil:
		c.err = c.yield(o)
		return c.err == nil
	// With a limit, the objects are counted up to the limit, because the continue token comes before them in the
	// answer.
	case c.tooLarge:
		return c.limit > 0
	}
	c.objects = append(c.objects, o)
	if c.bytes += len(o.Data); c.bytes > c.sel.retain && !c.view.Loaded() {
		c.tooLarge = true
		return c.limit > 0
	}
	return true
}

func (c *collector) chooseWaiting(ctx context.Context) bool {
	if c.err = c.sel.s.Resource.Renderer.Prepare(ctx, c.waiting); c.err != nil {
		return false
	}
	for _, o := range c.waiting {
		if c.full() || !c.choose(ctx, o) {
			return false
		}
	}
	c.waiting, c.waitingBytes = c.waiting[:0], 0
	return true
}

// finish chooses from the objects that still wait, and returns the error that the collector has met.
func (c *collector) finish(ctx context.Context) error {
	if c.err == nil && !c.more && (!c.tooLarge || c.limit > 0) {
		c.chooseWaiting(ctx)
	}
	return c.err
}

// most returns the number of objects that a list with this limit may need, for cache.View.Ascend: one more than the
// limit, to know whether there is another page, and at least lookAt if the list selects objects.
func (sel *selection) most(limit int) int {
	switch {
	case !sel.everything() && limit == 0:
		return sel.streaming()
	case !sel.everything():
		return max(limit+1, lookAt)
	case limit == 0:
		return 0
	}
	return limit + 1
}

// streaming returns the argument most of cache.View.Ascend for a reader that retains no objects.
func (sel *selection) streaming() int {
	if sel.everything() {
		return cache.StreamingAll
	}
	return cache.Streaming
}

const (
	// lookAt is the number of objects that a selecting page reads at first.
	lookAt = 500
	// batchBytes is the number of bytes of objects that are prepared together.
	batchBytes = 1 << 20
)

// indexLabel returns the metric label of the index that the list uses; "" if there is none.
func (sel *selection) indexLabel() string {
	if sel.index == "" {
		return ""
	}
	return "f:" + sel.index
}

// visit calls f for the objects that may match, in key order, using an index
// where there is one. most is as in cache.View.Ascend. A name in all namespaces is no key, so it is looked for
// among all objects.
func (sel *selection) visit(
	ctx context.Context, view *cache.View, start string, most int, f func(*cache.Object) bool,
) error {
	prefix := sel.prefix()
	switch {
	case sel.name != "" && (!sel.s.Kind.Namespaced || sel.namespace != ""):
		o, ok, err := view.Get(ctx, sel.s.Resource.Key(sel.namespace, sel.name))
		if err == nil && ok && o.Key >= start {
			f(o)
		}
		return err
	case sel.index != "":
		_, err := view.Index(ctx, sel.index, sel.value, start, prefix, most, f)
		return err
	}
	return view.Ascend(ctx, start, prefix, most, f)
}

// viewFor chooses the state to list, by the rules for resourceVersion,
// resourceVersionMatch, limit and continue (API concepts, "Resource versions"). The
// token is the continue parameter's, nil without one.
func (s *served) viewFor(ctx context.Context, o *listOptions) (*cache.View, *continueToken, error) {
	// The token has the revision of the first page, so another version would contradict it.
	if o.Continue != "" {
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return nil, nil, kerrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		return s.viewToContinue(ctx, o)
	}
	if o.ResourceVersion == "" {
		view, err := s.Resource.Reader.Current(ctx)
		return view, nil, err
	}
	revision, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, nil, err
	}
	// Without resourceVersionMatch, a limit makes a version exact. This rule is older than resourceVersionMatch.
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		o.ResourceVersionMatch == "" && o.Limit > 0 && revision != 0
	if exact {
		view, err := s.Resource.Reader.Exactly(ctx, revision)
		return view, nil, err
	}
	view, err := s.Resource.Reader.NotOlderThan(ctx, revision)
	return view, nil, err
}

const (
	expiredWithToken = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

func (s *served) viewToContinue(ctx context.Context, o *listOptions) (*cache.View, *continueToken, error) {
	token, err := parseContinue(o.Continue)
	if err != nil {
		return nil, nil, err
	}
	if token.Revision < 0 {
		view, err := s.Resource.Reader.Current(ctx)
		return view, &token, err
	}
	view, err := s.Resource.Reader.Exactly(ctx, token.Revision)
	return view, &token, err
}

// expired returns the error of a list. If the store no longer has the revision of a continue token, the answer has
// a new token that continues at the latest state.
func expired(err error, token *continueToken) error {
	if compacted := (*storage.CompactedError)(nil); token == nil || !errors.As(err, &compacted) {
		return err
	}
	gone := kerrors.NewResourceExpired(expiredWithToken)
	gone.ErrStatus.ListMeta.Continue = continueToken{Revision: inconsistent, Start: token.Start}.encode()
	return gone
}

// listSize estimates the body's size. It is the sum of the stored values. The JSON of an object is often longer
// than its protobuf.
func (s *served) listSize(p *page) int {
	n := 0
	for _, o := range p.objects {
		n += len(o.Data)
	}
	return n
}
