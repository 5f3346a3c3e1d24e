package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/keelson-dev/keelson/apiresponse"
	"github.com/keelson-dev/keelson/cache"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/rest/gzipsplice"
	"github.com/keelson-dev/keelson/rest/negotiate"
	"github.com/keelson-dev/keelson/scheme"
	"github.com/keelson-dev/keelson/scheme/wire"
)

// A long list is compressed by groups of neighbours in the tree, each once for as
// long as its objects stay: docs/decisions/0010 has why, and what it costs in memory.

// Lists whose objects take less are compressed as a whole, and so are those that take
// more: all pieces of a list are in memory while it is sent.
const (
	leastByGroups = 256 << 10
	mostByGroups  = 512 << 20
)

// itemForm is how a list shows its objects.
type itemForm struct {
	id cache.EncodingID
	// append appends an item as it stands in the list. Unless keep is set, what is
	// made for that is not kept with the object.
	append func(b []byte, o *cache.Object, keep bool) ([]byte, error)
	// between stands between two items.
	between string
}

// itemForm returns the form of the items of a list; false for a form whose groups are
// not kept.
func (s *served) itemForm(ctx context.Context, accepted negotiate.Accepted) (itemForm, bool) {
	partial := accepted.As == negotiate.PartialMetadataList
	proto := accepted.Media == scheme.Protobuf
	switch {
	case accepted.As != negotiate.Plain && !partial, partial && accepted.AsVersion != "v1":
		return itemForm{}, false
	case accepted.Media != scheme.JSON && !proto, accepted.Pretty:
		return itemForm{}, false
	case proto:
		f := itemForm{id: s.ItemEncodingID(s.Version, true)}
		if partial {
			f.id = registry.EncodingMetadataProto
		}
		f.append = func(b []byte, o *cache.Object, _ bool) ([]byte, error) {
			raw, err := s.listedProto(ctx, o, partial)
			return append(wire.AppendItemHead(b, len(raw)), raw...), err
		}
		return f, true
	case partial:
		return itemForm{id: registry.EncodingMetadata, between: ",", append: func(
			b []byte, o *cache.Object, _ bool,
		) ([]byte, error) {
			meta, err := s.MetadataJSON(ctx, o)
			return appendPartial(b, accepted.AsVersion, meta), err
		}}, true
	}
	return itemForm{id: s.ItemEncodingID(s.Version, false), between: ",", append: func(
		b []byte, o *cache.Object, keep bool,
	) ([]byte, error) {
		encode := s.ItemJSON
		if !keep {
			encode = s.ItemJSONOnce
		}
		item, err := encode(ctx, o, s.Version)
		return append(b, item...), err
	}}, true
}

// writeByGroups answers a list whose client reads gzip, if it is one to compress by
// groups, and says whether it was. Nothing was written otherwise.
func (s *served) writeByGroups(
	w http.ResponseWriter, r *http.Request, accepted negotiate.Accepted, p *page,
) (bool, error) {
	size := s.listSize(p)
	if p.groups == nil || size < leastByGroups || size > mostByGroups || !apiresponse.AcceptsGzip(r) {
		return false, nil
	}
	form, ok := s.itemForm(r.Context(), accepted)
	if !ok {
		return false, nil
	}
	pieces, length, own, err := s.pieces(form, p.inGroups())
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
	if err := hold(w, r, bufferSize+own); err != nil {
		return false, err
	}
	w.Header().Set("Content-Type", accepted.Media.String())
	beginGzip(w, http.StatusOK)
	buf := getBuffer()
	defer putBuffer(buf)
	z := gzipsplice.NewWriter(w, chunk, *buf)
	z.Text(head)
	for i, p := range pieces {
		if i > 0 && form.between != "" {
			z.Text([]byte(form.between))
		}
		z.Piece(p)
	}
	z.Text(tail)
	err = z.Close()
	*buf = z.Buffer()
	if err != nil {
		// The status is on its way; cutting the connection is the only honest end.
		panic(http.ErrAbortHandler)
	}
	return true, nil
}

// pieces returns the groups compressed, the length of their text with what is between
// them, and how many bytes of the pieces are not kept with their groups.
func (s *served) pieces(form itemForm, groups []group) (pieces []gzipsplice.Piece, length, own int, err error) {
	// Most clients list once and watch then. Only for those that come again are
	// items kept beside the groups, so that a change costs one item and not a group.
	keep := s.NoteRequest(form.id)
	buf := getBuffer()
	defer putBuffer(buf)
	length = max(0, len(groups)-1) * len(form.between)
	for _, g := range groups {
		piece, err := s.EncodedChunk(g.Chunk, form.id, func() ([]byte, error) {
			text := (*buf)[:0]
			for i, o := range g.Objects {
				if i > 0 {
					text = append(text, form.between...)
				}
				var err error
				if text, err = form.append(text, o, keep); err != nil {
					return nil, err
				}
			}
			*buf = text
			return gzipsplice.Compress(text)
		})
		if err != nil {
			return nil, 0, 0, err
		}
		if g.own {
			own += len(piece)
		}
		pieces = append(pieces, piece)
		length += int(gzipsplice.Piece(piece).Len())
	}
	return pieces, length, own, nil
}

// A group is one of a page.
type group struct {
	cache.Chunk
	own bool // nothing is kept of it
}

// inGroups returns the page's objects in groups. What is of a group in part, or shown
// in another state than the tree has, is a group of which nothing is kept.
func (p *page) inGroups() (groups []group) {
	rest := p.objects
	p.groups(func(g cache.Chunk) bool {
		n := min(len(g.Objects), len(rest))
		own := !slices.Equal(g.Objects, rest[:n])
		if own {
			g = cache.Chunk{Objects: rest[:n:n]}
		}
		groups, rest = append(groups, group{g, own}), rest[n:]
		return len(rest) > 0
	})
	if len(rest) > 0 {
		groups = append(groups, group{cache.Chunk{Objects: rest}, true})
	}
	return groups
}
