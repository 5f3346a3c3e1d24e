package rest

import (
	"context"
	"errors"
	"math"
	"net/http"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// A page whose objects are not in memory and take more than maxPageBytes is streamed: its objects are read from the
// store, encoded and sent piece by piece, and none of it is kept. All of them are read at the revision of the page, so
// that the list is one state. If the store has compacted that revision before the last object was read, the connection
// is closed, because the status was sent already.
//
// Protobuf needs the length of the list before its first item. Therefore the objects are read twice then: once for
// their lengths. So they are if the request has a limit: the token to continue with comes before the items.

const (
	// maxPageBytes bounds the objects of a page that are in memory for this page alone, in bytes.
	maxPageBytes = 16 << 20
	// streamMemory is about how many bytes a streamed page takes beside its buffers: a page of the store, and two batches of
	// objects with their encodings.
	streamMemory = 4 << 20
	// streamBatch bounds a batch of objects, which are prepared together, in bytes.
	streamBatch = 256 << 10
)

// streamedPage returns the function page.streamed of the page that begins at start.
func (s *served) streamedPage(
	sel *selection, view *cache.View, start string, limit int,
) func(context.Context, func(*cache.Object) error) error {
	return func(ctx context.Context, yield func(*cache.Object) error) error {
		c := collector{sel: sel, view: view, limit: limit, yield: yield, batch: sel.needsPreparing()}
		err := sel.visit(ctx, view, start, sel.streaming(), func(o *cache.Object) bool { return c.add(ctx, o) })
		if err == nil {
			err = c.finish(ctx)
		}
		return err
	}
}

// inBatches calls yield for the objects of a streamed page, which it prepares in batches. While yield encodes one batch, the next one is
// read.
func (s *served) inBatches(ctx context.Context, p *page, yield func(*cache.Object) error) error {
	reading, stop := context.WithCancel(ctx)
	r := &batchReader{batches: make(chan []*cache.Object)}
	go r.run(reading, p)
	defer func() {
		stop()
		for range r.batches { // wait for the reader
		}
	}()
	for batch := range r.batches {
		if err := s.Prepare(ctx, batch); err != nil {
			return err
		}
		for _, o := range batch {
			if err := yield(o); err != nil {
				return err
			}
		}
	}
	if r.panicked != nil {
		panic(r.panicked) // where the request is answered
	}
	return r.err
}

// batchReader reads the objects of a streamed page in batches.
type batchReader struct {
	batches chan []*cache.Object // closed at the end
	// err and panicked are how the reader ended. They are read after batches is closed.
	err      error
	panicked any

	batch []*cache.Object
	size  int
}

func (r *batchReader) run(ctx context.Context, p *page) {
	defer close(r.batches)
	defer func() { r.panicked = recover() }()
	r.err = p.each(ctx, func(o *cache.Object) error {
		r.batch = append(r.batch, o)
		if r.size += len(o.Data); r.size < streamBatch && len(r.batch) < lookAt {
			return nil
		}
		return r.send(ctx)
	})
	if r.err == nil {
		r.err = r.send(ctx)
	}
}

func (r *batchReader) send(ctx context.Context) error {
	batch := r.batch
	r.batch, r.size = nil, 0
	select {
	case r.batches <- batch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A listStream sends a streamed page.
type listStream struct {
	s        *served
	ctx      context.Context
	accepted negotiate.Accepted
	page     *page
	out      *stream
	b        []byte
}

// writeStreamed answers a streamed page. YAML and indented JSON are not indented then: a document of JSON is one of
// YAML too.
func (h *Handler) writeStreamed(
	w http.ResponseWriter, r *http.Request, s *served, accepted negotiate.Accepted, p *page,
) error {
	if accepted.Media == scheme.CBOR {
		return kerrors.NewRequestEntityTooLargeError("the list is too large to be encoded as CBOR, please use a limit")
	}
	if err := hold(r, streamMemory); err != nil {
		return err
	}
	l := &listStream{s: s, ctx: r.Context(), accepted: accepted, page: p}
	send := l.json
	switch {
	case accepted.As == negotiate.Table:
		include, err := includeObject(r)
		if err != nil {
			return err
		}
		t := &tableWriter{s: s, accepted: accepted, include: include, ages: ages{now: h.o.Now()}}
		send = func() error { return l.table(t) }
	case accepted.Media == scheme.Protobuf:
		size, err := l.protoSize()
		if err != nil {
			return err
		}
		send = func() error { return l.proto(size) }
	}
	var err error
	if l.out, err = newStream(w, r, accepted.Media, math.MaxInt); err != nil {
		return err
	}
	buf := getBuffer()
	defer putBuffer(buf)
	l.b = (*buf)[:0]
	if err = send(); err == nil {
		_, err = l.out.flush(l.b)
	}
	switch {
	case err == nil:
		l.out.close()
	case !l.out.begun:
		return err
	default:
		// The status is on its way; cutting the connection is the only honest end.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// partial reports whether items are the metadata of the objects.
func (l *listStream) partial() bool { return l.accepted.As == negotiate.PartialMetadataList }

// each calls yield for the objects.
func (l *listStream) each(yield func(*cache.Object) error) error {
	if l.partial() {
		return l.page.each(l.ctx, yield)
	}
	return l.s.inBatches(l.ctx, l.page, yield)
}

func (l *listStream) json() error {
	l.b = l.s.jsonListHead(l.b, l.accepted, l.page)
	separator := ""
	err := l.each(func(o *cache.Object) (err error) {
		l.b = append(l.b, separator...)
		separator = ","
		if !l.partial() {
			item, err := l.s.ItemJSONOnce(l.ctx, o, l.s.Version)
			if err == nil {
				l.b, err = l.out.item(l.b, item)
			}
			return err
		}
		meta, err := l.s.MetadataJSON(l.ctx, o)
		if err == nil {
			l.b, err = l.out.item(appendPartialHead(l.b, l.accepted.AsVersion), meta)
			l.b = append(l.b, '}')
		}
		return err
	})
	l.b = l.s.jsonListTail(l.b, l.accepted, l.page)
	return err
}

// protoSize returns the length of the items of a list in protobuf.
func (l *listStream) protoSize() (size int, err error) {
	err = l.each(func(o *cache.Object) error {
		raw, err := l.s.listedProto(l.ctx, o, l.partial())
		size += len(raw) + wire.ItemHeadSize(len(raw))
		return err
	})
	return size, err
}

func (l *listStream) proto(size int) error {
	head, meta := l.s.protoListHead(l.accepted, l.page)
	l.b = append(head.AppendOpen(l.b, len(meta)+size), meta...)
	err := l.each(func(o *cache.Object) error {
		raw, err := l.s.listedProto(l.ctx, o, l.partial())
		if err != nil {
			return err
		}
		if size -= len(raw) + wire.ItemHeadSize(len(raw)); size < 0 {
			return errors.New("an object has another length than before")
		}
		l.b, err = l.out.item(wire.AppendItemHead(l.b, len(raw)), raw)
		return err
	})
	if err == nil && size != 0 {
		err = errors.New("the objects have another length than before")
	}
	l.b = head.AppendClose(l.b)
	return err
}

func (l *listStream) table(t *tableWriter) (err error) {
	l.b, err = t.open(l.b, l.page, true)
	if err != nil {
		return err
	}
	separator := ""
	err = l.each(func(o *cache.Object) (err error) {
		if l.b, err = t.appendRow(l.ctx, append(l.b, separator...), view{o: o}); err != nil {
			return err
		}
		separator = ","
		l.b, err = l.out.item(l.b, nil)
		return err
	})
	l.b = append(l.b, "]}\n"...)
	return err
}
