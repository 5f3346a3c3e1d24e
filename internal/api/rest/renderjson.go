package rest

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

func (s *served) itemJSON(ctx context.Context, v view) ([]byte, error) {
	if v.item != nil {
		return v.item, nil
	}
	return s.Resource.Renderer.ItemJSON(ctx, v.o, s.Version)
}

func (s *served) metadataJSON(ctx context.Context, v view) ([]byte, error) {
	if v.item == nil {
		return s.Resource.Renderer.MetadataJSON(ctx, v.o)
	}
	meta, _, _, _, err := wire.Member(v.item, "metadata")
	if err != nil {
		return nil, err
	}
	return s.Resource.Renderer.ShownMetadata(meta)
}

// appendObject appends the JSON of one object with its apiVersion and kind, or of its metadata.
func (s *served) appendObject(ctx context.Context, b []byte, accepted negotiate.Accepted, v view) ([]byte, error) {
	if accepted.As == negotiate.PartialMetadata {
		meta, err := s.metadataJSON(ctx, v)
		if err != nil {
			return b, err
		}
		return appendPartial(b, accepted.AsVersion, meta), nil
	}
	item, err := s.itemJSON(ctx, v)
	if err != nil {
		return b, err
	}
	return scheme.AppendJSONObject(b, s.JSONHead, item), nil
}

func appendPartial(b []byte, version string, meta []byte) []byte {
	return append(append(appendPartialHead(b, version), meta...), '}')
}

// appendPartialHead appends a PartialObjectMetadata up to its metadata.
func appendPartialHead(b []byte, version string) []byte {
	b = append(b, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`...)
	b = append(b, version...)
	return append(b, `","metadata":`...)
}

// writeJSONList answers a list as JSON, in chunks.
func (s *served) writeJSONList(w http.ResponseWriter, r *http.Request, accepted negotiate.Accepted, p *page) error {
	// Encode missing items before the status is sent: later an error could not be sent any more.
	encode := func(ctx context.Context, o *cache.Object) ([]byte, error) {
		return s.Resource.Renderer.ItemJSON(ctx, o, s.Version)
	}
	if accepted.As == negotiate.PartialMetadataList {
		encode = s.Resource.Renderer.MetadataJSON
	}
	size, err := encodeAll(r.Context(), p, encode)
	if err != nil {
		return err
	}
	out, err := newStream(w, r, scheme.JSON, size)
	if err != nil {
		return err
	}
	buf := getBuffer()
	defer putBuffer(buf)
	b, err := s.jsonList(r.Context(), accepted, p, out.item, (*buf)[:0])
	if err == nil {
		_, err = out.flush(b)
	}
	out.close()
	if err != nil {
		// The status was sent already. Only a closed connection can tell the client of the error.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// encodeAll encodes the objects of a page and returns the size of all items. Objects that were read only for this page have no
// encoding yet: they are encoded on all processors.
func encodeAll(
	ctx context.Context, p *page, encode func(context.Context, *cache.Object) ([]byte, error),
) (size int, err error) {
	const alone = 64 // objects for which it does not pay to begin a goroutine
	part := len(p.objects)
	if p.own && part > alone {
		part = max((part+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0), alone)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex // guards size, err and panicked
	var panicked any
	for objects := range slices.Chunk(p.objects, max(part, 1)) {
		work := func() {
			n, failed := 0, error(nil)
			for _, o := range objects {
				item, e := encode(ctx, o)
				if failed = e; e != nil {
					break
				}
				n += len(item)
			}
			mu.Lock()
			defer mu.Unlock()
			size, err = size+n, cmp.Or(err, failed)
		}
		if part == len(p.objects) {
			work()
			continue
		}
		wait.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					mu.Lock()
					defer mu.Unlock()
					panicked = p
				}
			}()
			work()
		})
	}
	wait.Wait()
	if panicked != nil {
		panic(panicked) // in the goroutine of the request
	}
	return size, err
}

// jsonList encodes a list. For each item it calls add with b and the item; b ends with the text before the item.
// It returns the text that add has not written yet.
func (s *served) jsonList(
	ctx context.Context, accepted negotiate.Accepted, p *page, add func(b, item []byte) ([]byte, error), b []byte,
) (_ []byte, err error) {
	b = s.jsonListHead(b, accepted, p)
	for i, o := range p.objects {
		if i > 0 {
			b = append(b, ',')
		}
		if accepted.As == negotiate.PartialMetadataList {
			meta, err := s.Resource.Renderer.MetadataJSON(ctx, o)
			if err != nil {
				return b, err
			}
			b = appendPartialHead(b, accepted.AsVersion)
			if b, err = add(b, meta); err != nil {
				return b, err
			}
			b = append(b, '}')
			continue
		}
		item, err := s.Resource.Renderer.ItemJSON(ctx, o, s.Version)
		if err != nil {
			return b, err
		}
		if b, err = add(b, item); err != nil {
			return b, err
		}
	}
	return s.jsonListTail(b, accepted, p), nil
}

// jsonListHead appends a list's document up to its first item.
func (s *served) jsonListHead(b []byte, accepted negotiate.Accepted, p *page) []byte {
	if accepted.As != negotiate.PartialMetadataList {
		return s.form.listHead(b, p)
	}
	b = append(b, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/`...)
	b = append(b, accepted.AsVersion...)
	b = append(b, `",`...)
	return appendListHead(b, p)
}

// jsonListTail appends what follows the last item.
func (s *served) jsonListTail(b []byte, accepted negotiate.Accepted, p *page) []byte {
	if accepted.As == negotiate.PartialMetadataList {
		return s.form.metadataListTail(b, p)
	}
	return s.form.listTail(b, p)
}

// appendListHead appends a list's metadata and what opens its items.
func appendListHead(b []byte, p *page) []byte {
	b = append(b, `"metadata":`...)
	b = appendListMeta(b, p)
	return append(b, `,"items":[`...)
}

// appendListMeta leaves out a count of 0, which means unknown or none, as kube-apiserver does.
func appendListMeta(b []byte, p *page) []byte {
	if p.revision == 0 {
		return append(b, "{}"...) // computed lists have no version and no pages
	}
	b = append(b, `{"resourceVersion":"`...)
	b = strconv.AppendInt(b, p.revision, 10)
	b = append(b, '"')
	if p.next != "" {
		b = append(b, `,"continue":"`...)
		b = append(b, p.next...)
		b = append(b, '"')
	}
	if p.remaining > 0 {
		b = append(b, `,"remainingItemCount":`...)
		b = strconv.AppendInt(b, p.remaining, 10)
	}
	return append(b, '}')
}

func openEvent(b []byte, kind string) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, kind...)
	return append(b, `","object":`...)
}
