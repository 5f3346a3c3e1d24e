package rest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// Event types of a watch (API concepts, "Efficient detection of changes").
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// bookmarkEvery is the interval of bookmarks if a watch has requested them, bookmarkBefore the time between the last
// bookmark and the end of the watch. kube-apiserver has the same values. A client that asks for bookmarks must
// not rely on any interval.
const (
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
)

// initialEventsEnd marks the bookmark after the initial events (KEP-3157).
const initialEventsEnd = "k8s.io/initial-events-end"

// watch streams the changes of a collection or of one object.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, info *request.Info, s *served) error {
	accepted, err := h.requests.formats.Response(r, s.form.endpoint(negotiate.Endpoint{Transforms: true, List: true, Stream: true}))
	if err != nil {
		return err
	}
	if err := s.form.checkFormat(accepted); err != nil {
		return err
	}
	options, err := parseListOptions(r)
	if err != nil {
		return err
	}
	sel, err := selectionFor(r.Context(), s, info.Namespace, info.Name, &options, options.Watch)
	if err != nil {
		return err
	}
	// A selector with the same name as the path is no requirement in fields. Only another name, or an inequality,
	// is found here.
	if info.Name != "" && len(sel.fields) > 0 && sel.fields[0].field == "metadata.name" {
		return kerrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	revision, err := parseWatchVersion(options.ResourceVersion)
	if err != nil {
		return err
	}
	// The duration is random, so that watches that began together, for example after a restart, do not end
	// together.
	timeout := h.o.MinRequestTimeout + time.Duration(rand.Int64N(int64(h.o.MinRequestTimeout)))
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds > 0 {
		timeout = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	include, err := includeObject(r)
	if err != nil && accepted.As == negotiate.Table {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	st := &watchStream{
		h: h, s: s, w: w, flusher: http.NewResponseController(w), response: request.ResponseFrom(ctx),
		accepted: accepted, sel: sel, include: include,
		bookmarks: options.AllowWatchBookmarks, end: time.Now().Add(timeout),
		counter: h.o.WatchCounter(s.GVK.Group, s.GVK.Version, s.gr.Resource),
	}
	if st.out = w; h.zipsWatch(r, &options) {
		z := &zipWriter{w: w}
		defer z.Close() // the client may be gone
		st.out, st.zips = z, true
	}
	st.begin()
	st.run(ctx, revision, &options)
	return nil
}

// watchStream is one watch being served.
type watchStream struct {
	h        *Handler
	s        *served
	w        http.ResponseWriter
	out      io.Writer // takes the events: w, or what compresses them for w
	zips     bool
	flusher  *http.ResponseController
	response request.Response
	accepted negotiate.Accepted
	sel      *selection
	include  metav1.IncludeObjectPolicy
	counter  func(bytes int) // counts an event

	bookmarks bool
	end       time.Time   // when the watch ends
	timer     *time.Timer // for bookmarks
	due       time.Time   // of the next one
	// columnsSent means that the column definitions were sent in a table event.
	columnsSent bool
	// appended is the size of the event that was appended last.
	appended int
	at       place
	// initialView is the state that the watch begins with, nil after it was sent. held means that memory is counted for
	// it.
	initialView *cache.View
	held        bool
}

func (st *watchStream) begin() {
	contentType := st.accepted.Media.String()
	switch st.accepted.Media {
	case scheme.Protobuf:
		contentType += ";stream=watch"
	case scheme.CBOR:
		contentType = scheme.TypeCBORSequence
	}
	st.w.Header().Set("Content-Type", contentType)
	if st.zips {
		beginGzip(st.w, http.StatusOK)
	} else {
		st.w.WriteHeader(http.StatusOK)
	}
	_ = st.flusher.Flush()
}

// run sends events until the watch ends. Errors are sent as an event: the status
// line is already on its way.
func (st *watchStream) run(ctx context.Context, revision int64, o *listOptions) {
	from, err := st.initial(ctx, revision, o)
	st.initialSent()
	if err == nil {
		err = st.follow(ctx, from)
	}
	if errors.Is(err, errLost) {
		panic(http.ErrAbortHandler) // in the middle of an event
	}
	// These are ordinary ends. The client watches again from the last resourceVersion that it has seen.
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, errGone) || errors.Is(err, errNoEvents) || errors.Is(err, storage.ErrClosed) ||
		errors.Is(err, cache.ErrRemoved) {
		return
	}
	if isConversionError(err) {
		// The initial events are not tried again, because the state that the watch begins with would stay in memory.
		err = kerrors.NewTooManyRequests(err.Error(), 1)
	}
	status := apierr.Status(err)
	buf := getWatchBuffer()
	defer putWatchBuffer(buf)
	if b, err := st.appendStatus((*buf)[:0], status); err == nil {
		_ = st.send(b)
	}
}

// initial sends the objects that exist at the beginning, if the watch asks for them (resourceVersion and
// sendInitialEvents). It returns the revision after which the events of the watch begin.
func (st *watchStream) initial(ctx context.Context, revision int64, o *listOptions) (int64, error) {
	// Without sendInitialEvents (KEP-3157), no resourceVersion and "0" begin with synthetic ADDED events (API
	// concepts, "Semantics for watch").
	list := o.ResourceVersion == "" || revision == 0
	if o.SendInitialEvents != nil {
		list = *o.SendInitialEvents
		// The client wants only changes from now on.
		if !list && revision == 0 {
			return st.s.Resource.Reader.CurrentRevision(ctx)
		}
	}
	if !list {
		return revision, nil
	}
	var view *cache.View
	var err error
	if o.ResourceVersion == "" {
		view, err = st.s.Resource.Reader.Current(ctx)
	} else {
		view, err = st.s.Resource.Reader.NotOlderThan(ctx, revision)
	}
	if err != nil {
		return 0, err
	}
	buf := getWatchBuffer()
	defer putWatchBuffer(buf)
	b := (*buf)[:0]
	st.initialView = view
	var failed error
	// Objects that were sent are not kept, so they need not all be in memory at the same time.
	sent := 0
	err = st.sel.visit(ctx, view, "", st.sel.streaming(), func(o *cache.Object) bool {
		sent++
		b, failed = st.appendInitial(ctx, b, o)
		return failed == nil
	})
	if err = cmp.Or(err, failed); err != nil {
		return 0, err
	}
	st.s.Resource.Metrics().Add(cache.InitialEvents, sent)
	if st.bookmarks {
		// Informers wait for this bookmark before they take their list for complete.
		if b, err = st.appendBookmark(ctx, b, view.Revision(), true); err != nil {
			return 0, err
		}
	}
	*buf = b
	if len(b) > 0 {
		if err = st.beforeWrite(); err == nil {
			err = st.send(b)
		}
	}
	return view.Revision(), err
}

// followOn sends the events after the place st.at.
func (st *watchStream) followOn(ctx context.Context) error {
	// The place may be in the middle of a revision. So the cursor begins before this revision, and skip removes
	// the events that were sent.
	cursor, err := st.s.Resource.Reader.Watch(ctx, st.at.revision-1, st.sel.interest())
	if err != nil {
		return err
	}
	defer cursor.Close()
	again := st.at.events
	var pace pacer
	for {
		// The wait is at most sendGap, so the end of the watch need not interrupt it.
		if wait := pace.pause(time.Now()); wait > 0 {
			time.Sleep(wait)
		}
		events, _, err := cursor.NextOr(ctx, st.bookmarkTime())
		switch {
		case err != nil:
			return err
		case len(events) > 0:
			events, again = st.at.skip(events, again)
			err = st.sendEvents(ctx, events)
			pace.note(len(events), time.Now())
		default:
			err = st.sendBookmark(ctx, cursor.Revision())
		}
		if err != nil {
			return err
		}
	}
}

// bookmarkTime returns a channel that delivers when the next bookmark is due: every minute, and shortly before the
// watch ends. It is nil if the watch wants no bookmarks.
func (st *watchStream) bookmarkTime() <-chan time.Time {
	if !st.bookmarks {
		return nil
	}
	if st.timer == nil {
		st.timer = time.NewTimer(0)
		<-st.timer.C
		st.due = time.Now()
	}
	now := time.Now()
	if !now.Before(st.due) {
		// The last bookmark lets the client watch again from a recent revision, although its objects may not have
		// changed for long.
		last := st.end.Add(-bookmarkBefore)
		st.due = now.Add(bookmarkEvery)
		switch {
		case !now.Before(last):
			return nil
		case st.due.After(last):
			st.due = last
		}
		st.timer.Reset(time.Until(st.due))
	}
	return st.timer.C
}

// sendEvents sends events, and clears them one by one: while it waits for the client, it must not keep them in memory.
func (st *watchStream) sendEvents(ctx context.Context, events []*cache.Event) error {
	buf := getWatchBuffer()
	defer putWatchBuffer(buf)
	b := (*buf)[:0]
	var err error
	for i, e := range events {
		events[i], st.appended = nil, 0
		before, columns := b, st.columnsSent
		if b, err = st.appendEvent(ctx, b, e); err != nil {
			return st.interrupted(before, columns, e, err)
		}
		if st.appended > 0 {
			st.counter(st.appended)
		}
		st.at.pass(e)
	}
	*buf = b
	return st.send(b)
}

// appendEvent appends the event that this watch gets for a change: ADDED if the object enters the selection, DELETED
// if it leaves it, MODIFIED if it stays in it. It appends nothing if the object was not selected before and is not
// selected now.
func (st *watchStream) appendEvent(ctx context.Context, b []byte, e *cache.Event) ([]byte, error) {
	object, prev := e.Object, e.Prev
	if object != nil {
		var err error
		if object, err = st.s.Resource.Reader.Readable(ctx, object); err != nil {
			return b, err
		}
	}
	if prev != nil && prev.Err() != nil {
		// The type of the event depends on the previous object. If it cannot be read, it counts as selected: see
		// concerns.
		if readable, err := st.s.Resource.Reader.Readable(ctx, prev); err == nil {
			prev = readable
		}
	}
	is, was, err := st.concerns(ctx, object, prev)
	switch {
	case err != nil:
		return b, err
	case is && was:
		return st.append(ctx, b, modified, object)
	case is:
		return st.append(ctx, b, added, object)
	case was:
		last, err := e.PrevAt()
		if err != nil {
			return b, err
		}
		return st.append(ctx, b, deleted, last)
	}
	return b, nil
}

// concerns reports whether the object is selected and whether prev was. If prev cannot be read, was is true,
// because it may have been selected.
func (st *watchStream) concerns(ctx context.Context, object, prev *cache.Object) (is, was bool, err error) {
	if object != nil {
		if is, err = st.sel.matches(ctx, object); err != nil {
			return
		}
	}
	switch {
	case prev == nil:
	case prev.Err() != nil:
		was = true
	default:
		was, err = st.sel.matches(ctx, prev)
	}
	return
}

// send writes b and flushes. b may be empty although parts of its events were written before (writeFull); these
// are flushed too.
func (st *watchStream) send(b []byte) error {
	if len(b) > 0 {
		if _, err := st.out.Write(b); err != nil {
			return errGone
		}
	}
	// Without the flush, events would wait in the buffer of the connection until it is full.
	if err := st.flusher.Flush(); err != nil {
		return errGone
	}
	return nil
}

// sendBookmark sends a bookmark, which means: the client has seen all events up to this revision.
func (st *watchStream) sendBookmark(ctx context.Context, revision int64) error {
	buf := getWatchBuffer()
	defer putWatchBuffer(buf)
	b, err := st.appendBookmark(ctx, (*buf)[:0], revision, false)
	if err != nil {
		return err
	}
	*buf = b
	return st.send(b)
}

// appendBookmark appends an empty object of the kind with only a
// resourceVersion. A bookmark has the kind of the watched objects, so that clients decode it like the object of
// any other event.
func (st *watchStream) appendBookmark(ctx context.Context, b []byte, revision int64, initialEnd bool) ([]byte, error) {
	if st.accepted.As == negotiate.PartialMetadataList {
		return b, errNoEvents
	}
	obj := st.s.Version.New()
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initialEnd {
		obj.SetAnnotations(map[string]string{initialEventsEnd: "true"})
	}
	o := &cache.Object{Revision: revision}
	v := view{o: o}
	if st.accepted.Media == scheme.Protobuf {
		raw, err := st.s.form.encodeProto(obj)
		if err != nil {
			return b, err
		}
		o.Data = raw
		return st.appendProtoEvent(b, bookmark, func(b []byte) ([]byte, error) {
			if st.accepted.As == negotiate.PartialMetadata {
				meta, err := wire.MetadataField(raw)
				return wire.NewEnvelopeHead("meta.k8s.io/"+st.accepted.AsVersion, "PartialObjectMetadata").Append(b, meta), err
			}
			return st.s.objectProto.Append(b, raw), nil
		})
	}
	if st.accepted.Media == scheme.CBOR {
		obj.GetObjectKind().SetGroupVersionKind(st.s.GVK)
		return scheme.AppendCBOR(b, map[string]any{"type": bookmark, "object": obj})
	}
	item, err := st.s.form.encodeItem(obj)
	if err != nil {
		return b, err
	}
	v.item = item
	b = openEvent(b, bookmark)
	if st.accepted.As == negotiate.Table {
		t := tableWriter{s: st.s, accepted: st.accepted, include: st.include, object: obj, ages: ages{now: st.h.o.Now()}}
		b, err = t.append(ctx, b, &page{revision: revision}, []view{v}, !st.columnsSent)
		st.columnsSent = true
	} else {
		b, err = st.s.appendObject(ctx, b, st.accepted, v)
	}
	return append(b, "}\n"...), err
}

// appendStatus appends an ERROR event. Its object is a Status in every form of response, also in a watch of
// Tables.
func (st *watchStream) appendStatus(b []byte, status *metav1.Status) ([]byte, error) {
	if st.accepted.Media == scheme.Protobuf {
		return st.appendProtoEvent(b, failed, func(b []byte) ([]byte, error) {
			raw, err := scheme.EncodeProto(status)
			return statusProto.Append(b, raw), err
		})
	}
	if st.accepted.Media == scheme.CBOR {
		return scheme.AppendCBOR(b, map[string]any{"type": failed, "object": status})
	}
	text, err := scheme.Marshal(status)
	b = append(openEvent(b, failed), text...)
	return append(b, "}\n"...), err
}
