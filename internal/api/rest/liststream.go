package rest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// A page is streamed if its objects are not in memory and take more than a limit: streamedFrom, or maxPageBytes in
// the cases below. The first objects, up to the limit, are in memory. The others are read from the store, encoded and
// sent piece by piece, and none of them is kept. All objects are read at the revision of the page, so that the list
// is one state. If the store compacts that revision before the last object was read, the connection is closed,
// because the status was already sent.
//
// The objects of some pages are read from the store twice. Protobuf needs the length of the list before its first
// item, so the first reading adds up the lengths. A request with a limit needs the continue token before the items,
// so the first reading finds the last key. The limit of these pages is maxPageBytes. It is also the limit of pages
// that would lose something (YAML and JSON would lose their indentation, CBOR is not streamed at all), and of custom
// resources.

const (
	// streamedFrom bounds the objects that are read before the first one is encoded, in bytes.
	streamedFrom = 2 << 20
	// maxPageBytes bounds the objects of a page that are in memory for this page alone, in bytes.
	maxPageBytes = 16 << 20
	// streamMemory is about how many bytes a streamed page takes in addition to its buffers: a page of the store, and
	// maxBatches batches of objects with their encodings.
	streamMemory = 4 << 20
	// streamBatch is about the size of a batch of objects, which are prepared and encoded together, in bytes.
	streamBatch = 128 << 10
	// maxBatches is the number of batches that are encoded at the same time or wait to be sent. With this number,
	// reading stays ahead of sending.
	maxBatches = 8
)

// isReadOnce reports whether streaming a page has no disadvantage: the objects are read from the store only once, and
// the response is the same as without streaming. It is false for objects that a conversion webhook may have to
// convert, because the webhook should get many of them in one call.
func (s *served) isReadOnce(accepted negotiate.Accepted, o *listOptions) bool {
	return accepted.Media == scheme.JSON && !accepted.Pretty && o.Limit == 0 && !s.Resource.Renderer.IsPrepared()
}

// streamedPage returns the function page.streamed. It yields up to limit objects at or above start; the limit 0
// means all objects.
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

// encodeBatch appends the encodings of objects to b.
type encodeBatch func(ctx context.Context, b []byte, objects []*cache.Object) ([]byte, error)

// batches encodes the objects of a streamed page. One goroutine reads them in batches, others encode the batches.
type batches struct {
	page   *page
	encode encodeBatch
	// room has a place for each streamBatch bytes of objects that are encoded, or wait to be sent.
	room chan struct{}
	// encoded has the batches in their order. Some of them are still being encoded. It is closed after the last
	// batch.
	encoded chan *batch
	// err and panicked are the error or the panic that ended reading. They are valid after encoded is closed.
	err      error
	panicked any

	objects []*cache.Object // the next batch
	size    int             // in bytes
}

type batch struct {
	done     chan struct{} // closed at the end; the fields below are valid then
	b        *[]byte
	err      error
	panicked any
	places   int // in batches.room
}

// inBatches calls send for the encodings of batches of the objects of a page, in their order. send must not keep them.
func (p *page) inBatches(ctx context.Context, encode encodeBatch, send func([]byte) error) error {
	all := &batches{
		page: p, encode: encode, room: make(chan struct{}, maxBatches), encoded: make(chan *batch, maxBatches),
	}
	ctx, stop := context.WithCancel(ctx)
	go all.read(ctx)
	defer func() {
		stop()
		for one := range all.encoded { // wait for the goroutines
			<-one.done
		}
	}()
	for one := range all.encoded {
		<-one.done
		if one.panicked != nil {
			panic(one.panicked) // in the goroutine of the request
		}
		err := one.err
		if err == nil {
			err = send(*one.b)
		}
		putBuffer(one.b)
		if err != nil {
			return err
		}
		for range one.places {
			<-all.room
		}
	}
	if all.panicked != nil {
		panic(all.panicked)
	}
	return all.err
}

func (ba *batches) read(ctx context.Context) {
	defer close(ba.encoded)
	defer func() { ba.panicked = recover() }()
	ba.err = ba.page.each(ctx, func(o *cache.Object) error {
		ba.objects = append(ba.objects, o)
		if ba.size += len(o.Data); ba.size < streamBatch && len(ba.objects) < lookAt {
			return nil
		}
		return ba.start(ctx)
	})
	if ba.err == nil && len(ba.objects) > 0 {
		ba.err = ba.start(ctx)
	}
}

// start waits for room for the next batch and begins to encode it.
func (ba *batches) start(ctx context.Context) error {
	// A batch with one very large object takes all places, not more: otherwise it would wait forever.
	one := &batch{done: make(chan struct{}), places: min(1+ba.size/streamBatch, cap(ba.room))}
	for range one.places {
		select {
		case ba.room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	objects := ba.objects
	ba.objects, ba.size = nil, 0
	go func() {
		defer close(one.done)
		defer func() { one.panicked = recover() }()
		one.b = getBuffer()
		*one.b, one.err = ba.encode(ctx, (*one.b)[:0], objects)
	}()
	ba.encoded <- one // there is room: each batch has a place
	return nil
}

// A listStream sends a streamed page.
type listStream struct {
	s        *served
	ctx      context.Context
	accepted negotiate.Accepted
	page     *page
	out      *stream
	b        []byte
	// preparing is locked while one batch is prepared, so that a conversion webhook gets only one call of a list
	// at a time.
	preparing sync.Mutex
}

// streamed answers a streamed page. It sends YAML and indented JSON as JSON without indentation, because a JSON
// document is also a YAML document. It refuses a list in CBOR with 413.
func (a answers) streamed(
	w http.ResponseWriter, r *http.Request, s *served, accepted negotiate.Accepted, p *page,
) error {
	if accepted.Media == scheme.CBOR {
		return kerrors.NewRequestEntityTooLargeError("the list is too large to be encoded as CBOR, please use a limit")
	}
	memory := streamMemory
	if p.own {
		memory += s.listSize(p)
	}
	if err := hold(r, memory); err != nil {
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
		t := &tableWriter{s: s, accepted: accepted, include: include, ages: ages{now: a.now()}}
		send = func() error { return l.table(t) }
	case accepted.Media == scheme.Protobuf:
		size, err := l.protoSize()
		if err != nil {
			return err
		}
		send = func() error { return l.proto(size) }
	}
	p.once = true
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
		// The status was sent already. Only a closed connection can tell the client of the error.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// partial reports whether items are the metadata of the objects.
func (l *listStream) partial() bool { return l.accepted.As == negotiate.PartialMetadataList }

// encoding returns a function that encodes batches of objects. item appends the encoding of one object to b. The
// metadata is the same in every version, so it needs no conversion webhook.
func (l *listStream) encoding(
	item func(ctx context.Context, b []byte, o *cache.Object) ([]byte, error),
) encodeBatch {
	return func(ctx context.Context, b []byte, objects []*cache.Object) ([]byte, error) {
		if !l.partial() {
			if err := l.prepare(ctx, objects); err != nil {
				return b, err
			}
		}
		for _, o := range objects {
			var err error
			if b, err = item(ctx, b, o); err != nil {
				return b, err
			}
		}
		return b, nil
	}
}

func (l *listStream) prepare(ctx context.Context, objects []*cache.Object) error {
	l.preparing.Lock()
	defer l.preparing.Unlock()
	return l.s.Resource.Renderer.Prepare(ctx, objects)
}

// send sends the encoded objects of the page. encode writes separator before each object; send removes it before the
// first one.
func (l *listStream) send(separator string, encode encodeBatch) error {
	first := len(separator)
	return l.page.inBatches(l.ctx, encode, func(items []byte) (err error) {
		l.b, err = l.out.item(l.b, items[first:])
		first = 0
		return err
	})
}

func (l *listStream) json() error {
	const separator = ","
	l.b = l.s.jsonListHead(l.b, l.accepted, l.page)
	err := l.send(separator, l.encoding(func(ctx context.Context, b []byte, o *cache.Object) ([]byte, error) {
		b = append(b, separator...)
		if l.partial() {
			meta, err := l.s.Resource.Renderer.MetadataJSON(ctx, o)
			return appendPartial(b, l.accepted.AsVersion, meta), err
		}
		return l.s.Resource.Renderer.AppendItemJSONOnce(ctx, b, o, l.s.Version)
	}))
	l.b = l.s.jsonListTail(l.b, l.accepted, l.page)
	return err
}

// protoItems encodes the items of a list in protobuf.
func (l *listStream) protoItems() encodeBatch {
	return l.encoding(func(ctx context.Context, b []byte, o *cache.Object) ([]byte, error) {
		raw, err := l.s.listedProto(ctx, o, l.partial())
		return append(wire.AppendItemHead(b, len(raw)), raw...), err
	})
}

// protoSize returns the length of the items of a list in protobuf.
func (l *listStream) protoSize() (size int, err error) {
	err = l.page.inBatches(l.ctx, l.protoItems(), func(items []byte) error {
		size += len(items)
		return nil
	})
	return size, err
}

func (l *listStream) proto(size int) error {
	head, meta := l.s.protoListHead(l.accepted, l.page)
	l.b = append(head.AppendOpen(l.b, len(meta)+size), meta...)
	err := l.page.inBatches(l.ctx, l.protoItems(), func(items []byte) (err error) {
		// The length is already sent. An object whose encoding changed since, for example because a webhook
		// answered differently, makes the list invalid.
		if size -= len(items); size < 0 {
			return errors.New("an object has another length than before")
		}
		l.b, err = l.out.item(l.b, items)
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
	const separator = ","
	err = l.send(separator, func(ctx context.Context, b []byte, objects []*cache.Object) ([]byte, error) {
		t := *t // a copy, because it remembers the last age
		return l.encoding(func(ctx context.Context, b []byte, o *cache.Object) ([]byte, error) {
			return t.appendRow(ctx, append(b, separator...), view{o: o})
		})(ctx, b, objects)
	})
	l.b = append(l.b, "]}\n"...)
	return err
}
