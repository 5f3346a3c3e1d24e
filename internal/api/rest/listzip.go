package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/keelson-dev/keelson/internal/api/rest/gzipsplice"
	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// The response to a long list is compressed in chunks: the objects of each chunk of the cache's tree are compressed
// together, and the result is kept as long as these objects do not change. docs/decisions/0010 has the reasons, and
// what this costs in memory.

// Lists whose objects take fewer bytes than minByChunks are compressed as a whole, and so are lists of more than
// maxByChunks, because all compressed chunks of a list are in memory while it is sent.
const (
	minByChunks = 256 << 10
	maxByChunks = 512 << 20
)

// itemEncoding is the encoding of the objects of a list.
type itemEncoding struct {
	id cache.EncodingID
	// append appends an encoded item. If keep is true, the encoding is kept with the object.
	append func(b []byte, o *cache.Object, keep bool) ([]byte, error)
	// separator is between two items.
	separator string
}

// itemEncoding returns the encoding of the items of a list. ok is false for encodings whose compressed chunks are not
// kept.
func (s *served) itemEncoding(ctx context.Context, accepted negotiate.Accepted) (e itemEncoding, ok bool) {
	partial := accepted.As == negotiate.PartialMetadataList
	proto := accepted.Media == scheme.Protobuf
	switch {
	// A Table has ages, which depend on the time of reading. The id of the encoding does not contain the version
	// of the metadata, so only v1 is kept.
	case accepted.As != negotiate.Plain && !partial, partial && accepted.AsVersion != "v1":
		return itemEncoding{}, false
	// YAML and indented JSON are made from the whole document.
	case accepted.Media != scheme.JSON && !proto, accepted.Pretty:
		return itemEncoding{}, false
	case proto:
		f := itemEncoding{id: s.Resource.Renderer.ItemEncodingID(s.Version, true)}
		if partial {
			f.id = registry.EncodingMetadataProto
		}
		f.append = func(b []byte, o *cache.Object, _ bool) ([]byte, error) {
			raw, err := s.listedProto(ctx, o, partial)
			return append(wire.AppendItemHead(b, len(raw)), raw...), err
		}
		return f, true
	case partial:
		return itemEncoding{id: registry.EncodingMetadata, separator: ",", append: func(
			b []byte, o *cache.Object, _ bool,
		) ([]byte, error) {
			meta, err := s.Resource.Renderer.MetadataJSON(ctx, o)
			return appendPartial(b, accepted.AsVersion, meta), err
		}}, true
	}
	return itemEncoding{id: s.Resource.Renderer.ItemEncodingID(s.Version, false), separator: ",", append: func(
		b []byte, o *cache.Object, keep bool,
	) ([]byte, error) {
		if !keep {
			return s.Resource.Renderer.AppendItemJSONOnce(ctx, b, o, s.Version)
		}
		item, err := s.Resource.Renderer.ItemJSON(ctx, o, s.Version)
		return append(b, item...), err
	}}, true
}

// writeByChunks responds to a list with compressed chunks if the client accepts gzip and the list is suitable. If
// it returns false, it has written nothing.
func (s *served) writeByChunks(
	w http.ResponseWriter, r *http.Request, accepted negotiate.Accepted, p *page,
) (bool, error) {
	size := s.listSize(p)
	if p.chunks == nil || size < minByChunks || size > maxByChunks || !apiresponse.AcceptsGzip(r) {
		return false, nil
	}
	encoding, ok := s.itemEncoding(r.Context(), accepted)
	if !ok {
		return false, nil
	}
	pieces, length, own, err := s.compressed(encoding, p.inChunks())
	if err != nil {
		return false, err
	}
	var head, tail []byte
	if accepted.Media == scheme.Protobuf {
		envelope, meta := s.protoListHead(accepted, p)
		head = append(envelope.AppendOpen(nil, len(meta)+length), meta...)
		tail = envelope.AppendClose(nil)
	} else {
		head, tail = s.jsonListHead(nil, accepted, p), s.jsonListTail(nil, accepted, p)
	}
	if len(head)+length+len(tail) <= gzipThreshold {
		return false, nil // its objects are long, but the list is not
	}
	if err := hold(r, bufferSize+own); err != nil {
		return false, err
	}
	w.Header().Set("Content-Type", accepted.Media.String())
	beginGzip(w, http.StatusOK)
	buf := getBuffer()
	defer putBuffer(buf)
	z := gzipsplice.NewWriter(w, chunk, *buf)
	z.Text(head)
	for i, p := range pieces {
		if i > 0 && encoding.separator != "" {
			z.Text([]byte(encoding.separator))
		}
		z.Piece(p)
	}
	z.Text(tail)
	err = z.Close()
	*buf = z.Buffer()
	if err != nil {
		// The status was sent already, so the client learns of the error only if the connection is closed.
		panic(http.ErrAbortHandler)
	}
	return true, nil
}

// compressed returns the compressed chunks, the length of their text with the separators between them, and how many
// bytes of them are not kept in the cache.
func (s *served) compressed(encoding itemEncoding, chunks []pageChunk) (
	pieces []gzipsplice.Piece, length, own int, err error,
) {
	// Most clients list once and then watch. If a list is requested again, the encoded items are kept too, so that
	// after a change only one item is encoded and not its whole chunk.
	keep := s.Resource.Renderer.NoteRequest(encoding.id)
	buf := getBuffer()
	defer putBuffer(buf)
	length = max(0, len(chunks)-1) * len(encoding.separator)
	for _, c := range chunks {
		piece, err := s.Resource.Renderer.EncodedChunk(c.Chunk, encoding.id, func() ([]byte, error) {
			text := (*buf)[:0]
			for i, o := range c.Objects {
				if i > 0 {
					text = append(text, encoding.separator...)
				}
				var err error
				if text, err = encoding.append(text, o, keep); err != nil {
					return nil, err
				}
			}
			*buf = text
			return gzipsplice.Compress(text)
		})
		if err != nil {
			return nil, 0, 0, err
		}
		if c.own {
			own += len(piece)
		}
		pieces = append(pieces, piece)
		length += int(gzipsplice.Piece(piece).Len())
	}
	return pieces, length, own, nil
}

// pageChunk is a chunk of the objects of a page.
type pageChunk struct {
	cache.Chunk
	own bool // it is not a chunk of the cache, so the cache does not keep it compressed
}

// inChunks returns the objects of the page in chunks. If the objects are only a part of a chunk of the cache, or
// differ from those in the cache, they are a chunk that only this page has.
func (p *page) inChunks() (chunks []pageChunk) {
	rest := p.objects
	p.chunks(func(c cache.Chunk) bool {
		n := min(len(c.Objects), len(rest))
		own := !slices.Equal(c.Objects, rest[:n])
		if own {
			c = cache.Chunk{Objects: rest[:n:n]}
		}
		chunks, rest = append(chunks, pageChunk{c, own}), rest[n:]
		return len(rest) > 0
	})
	if len(rest) > 0 {
		chunks = append(chunks, pageChunk{cache.Chunk{Objects: rest}, true})
	}
	return chunks
}
