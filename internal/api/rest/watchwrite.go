package rest

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// A watch whose client does not read waits in a write, for as long as the watch lasts. What it holds meanwhile is one
// buffer of at most watchChunk + largeText bytes and its position in the log. Small events are put together in the
// buffer. A large one is copied to it and written piece by piece, from the bytes that all watches share. Between two
// pieces the watch refers to the object only weakly: if the object leaves the log and the cache before the client has
// read all of it, the connection is closed in the middle of the event, and the client watches again from the last event
// that it has seen. A large object that was read for this watch alone, from the history of the store, is counted for its
// user as other responses are (hold.go).

const (
	// watchChunk is the number of bytes in one write of a watch.
	watchChunk = 32 << 10
	// largeText is the size in bytes from which the text of an object is written piece by piece.
	largeText = 16 << 10
	// initialStall is the longest time that a write of initial events may take. Until they are sent, a watch holds
	// the state that it began with.
	initialStall = 30 * time.Second
	// initialMemory is about how many bytes a watch holds while it sends initial events that are not in memory: a page of
	// the store, and an object with its encoding.
	initialMemory = 3 << 20
)

var (
	// errGone ends a watch whose client went away.
	errGone = errors.New("the client is gone")
	// errLost ends a watch in the middle of an event whose object is not in memory any more.
	errLost = errors.New("the object of an event is gone")
)

// watchBuffers are the buffers of watches, which are smaller than those of other responses.
var watchBuffers = sync.Pool{New: func() any { b := make([]byte, 0, watchChunk+largeText); return &b }}

func getWatchBuffer() *[]byte { return watchBuffers.Get().(*[]byte) }

func putWatchBuffer(b *[]byte) {
	const keep = 2 * (watchChunk + largeText)
	if cap(*b) <= keep {
		*b = (*b)[:0]
		watchBuffers.Put(b)
	}
}

// event describes how to render an event, without its object. Equal events with the same object have equal bytes.
type event struct {
	kind    string // its type, such as ADDED
	columns bool   // a Table with the definitions of its columns
	now     time.Time
}

// append appends an event about an object to b. If b then has watchChunk bytes or more, append writes b and returns
// it empty. It writes a large object piece by piece.
func (st *watchStream) append(ctx context.Context, b []byte, kind string, o *cache.Object) ([]byte, error) {
	e := event{kind: kind, columns: !st.columnsSent}
	if st.accepted.As == negotiate.Table {
		e.now, st.columnsSent = st.h.o.Now(), true
	}
	before := len(b)
	b, body, tail, err := st.render(ctx, b, e, o)
	if err != nil {
		return b, err
	}
	st.appended = len(b) - before + len(body) + len(tail)
	if len(body) < largeText {
		b = append(append(b, body...), tail...)
		return st.writeFull(b)
	}
	if !o.IsKept() && st.initialView == nil {
		// It would be gone at the next garbage collection.
		defer runtime.KeepAlive(o)
		if err := st.hold(len(body)); err != nil {
			return b, err
		}
		defer st.response.ReleaseMemory()
	}
	if b, err = st.appendLarge(ctx, b, e, body, weak.Make(o)); err != nil {
		return b, err
	}
	return st.writeFull(append(b, tail...))
}

// hold counts n bytes that only this watch keeps in memory, until ReleaseMemory. The error is 429 if the user has
// no memory left.
func (st *watchStream) hold(n int) error {
	if !st.response.Hold(int64(n)) {
		return apierr.TooManyUnread()
	}
	return nil
}

// appendLarge appends the body of an event, and writes it piece by piece. While it waits for the client, it holds
// neither the body nor the object.
func (st *watchStream) appendLarge(
	ctx context.Context, b []byte, e event, body []byte, object weak.Pointer[cache.Object],
) (_ []byte, err error) {
	for size, at := len(body), 0; at < size; {
		if at > 0 {
			o := object.Value()
			if o == nil {
				return b, errLost
			}
			// The bytes are rendered again rather than kept. If the length differs, the rest would not fit to
			// what was sent.
			if _, body, _, err = st.render(ctx, nil, e, o); err != nil || len(body) != size {
				return b, errLost
			}
		}
		n := min(size-at, max(watchChunk-len(b), 1))
		b, at = append(b, body[at:at+n]...), at+n
		body = nil
		if b, err = st.writeFull(b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// writeFull writes b if it is long enough, and returns the rest that is not written.
func (st *watchStream) writeFull(b []byte) ([]byte, error) {
	if len(b) < watchChunk {
		return b, nil
	}
	if err := st.beforeWrite(); err != nil {
		return b, err
	}
	if _, err := st.out.Write(b); err != nil {
		return b[:0], errGone
	}
	return b[:0], nil
}

// beforeWrite limits the time of a write of initial events, and counts the memory of the events that are not in the
// cache. The error is 429 if the user has no memory left.
func (st *watchStream) beforeWrite() error {
	if st.initialView == nil {
		return nil
	}
	_ = st.flusher.SetWriteDeadline(time.Now().Add(initialStall)) // a ResponseWriter of a test may have none
	if st.held || st.initialView.Loaded() {
		return nil
	}
	st.held = true
	return st.hold(initialMemory)
}

// initialSent is called after all initial events were sent. It gives up the state that the watch began with, and ends
// the time limit that beforeWrite has set.
func (st *watchStream) initialSent() {
	if st.initialView != nil {
		st.initialView = nil
		_ = st.flusher.SetWriteDeadline(time.Time{})
	}
	st.response.InitialEventsSent()
}

// render appends an event to b up to the text of its object. It returns this text as body, which is shared and
// must not be changed, and the bytes after it as tail. It may append a short event to b as a whole.
func (st *watchStream) render(
	ctx context.Context, b []byte, e event, o *cache.Object,
) (_, body, tail []byte, err error) {
	switch {
	case st.accepted.As == negotiate.PartialMetadataList:
		return b, nil, nil, errNoEvents
	case st.accepted.Media == scheme.Protobuf:
		return st.renderProto(ctx, b, e, o)
	case st.accepted.Media == scheme.CBOR:
		return split(b, func(b []byte) ([]byte, error) { return st.appendCBOREvent(ctx, b, e.kind, o) })
	case st.accepted.As == negotiate.Table:
		return split(b, func(b []byte) ([]byte, error) {
			t := tableWriter{s: st.s, accepted: st.accepted, include: st.include, ages: ages{now: e.now}}
			b, err := t.append(ctx, openEvent(b, e.kind), &page{revision: o.Revision}, []view{{o: o}}, e.columns)
			return append(b, "}\n"...), err
		})
	}
	return st.renderJSON(ctx, openEvent(b, e.kind), o)
}

// split calls add, which appends an event to b. A large one becomes a text of its own, so that b does not grow.
func split(b []byte, add func([]byte) ([]byte, error)) (_, body, tail []byte, err error) {
	before := len(b)
	grown, err := add(b)
	if err != nil || len(grown)-before < largeText {
		return grown, nil, nil, err
	}
	body = slices.Clone(grown[before:])
	return append(make([]byte, 0, watchChunk+largeText), grown[:before]...), body, nil, nil
}

var (
	endOfEvent         = []byte("}\n")
	endOfMetadataEvent = []byte("}}\n")
)

func (st *watchStream) renderJSON(ctx context.Context, b []byte, o *cache.Object) (_, body, tail []byte, err error) {
	if st.accepted.As == negotiate.PartialMetadata {
		meta, err := st.s.Resource.Renderer.MetadataJSON(ctx, o)
		return appendPartialHead(b, st.accepted.AsVersion), meta, endOfMetadataEvent, err
	}
	item, err := st.s.Resource.Renderer.ItemJSON(ctx, o, st.s.Version)
	if err != nil {
		return b, nil, nil, err
	}
	if len(item) < largeText {
		return append(scheme.AppendJSONObject(b, st.s.JSONHead, item), endOfEvent...), nil, nil, nil
	}
	return append(b, st.s.JSONHead...), item[1:], endOfEvent, nil
}

// renderProto is render for protobuf. The lengths before the body need only the size of the body, so a large body
// can be sent piece by piece.
func (st *watchStream) renderProto(
	ctx context.Context, b []byte, e event, o *cache.Object,
) (_, body, tail []byte, err error) {
	head := st.s.objectProto
	if st.accepted.As == negotiate.PartialMetadata {
		head = wire.NewEnvelopeHead("meta.k8s.io/"+st.accepted.AsVersion, "PartialObjectMetadata")
		body, err = st.s.Resource.Renderer.MetadataProto(ctx, o)
	} else if err = st.s.form.checkFormat(st.accepted); err == nil {
		body, err = st.s.Resource.Renderer.ItemProto(ctx, o, st.s.Version)
	}
	if err != nil {
		return b, nil, nil, err
	}
	size := head.Size(len(body))
	before := wire.WatchEventHead(e.kind, size)
	b = binary.BigEndian.AppendUint32(b, uint32(len(before)+size))
	return head.AppendOpen(append(b, before...), len(body)), body, head.AppendClose(nil), nil
}

// appendInitial appends an object of the initial state of the watch, if it is selected.
func (st *watchStream) appendInitial(ctx context.Context, b []byte, o *cache.Object) ([]byte, error) {
	o, err := st.s.Resource.Reader.Readable(ctx, o)
	if err != nil {
		return b, err
	}
	if ok, err := st.sel.matches(ctx, o); err != nil || !ok {
		return b, err
	}
	b, err = st.append(ctx, b, added, o)
	runtime.KeepAlive(o) // it may have been read for this watch alone
	return b, err
}
