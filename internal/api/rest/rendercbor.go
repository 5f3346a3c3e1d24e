package rest

import (
	"context"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// CBOR is made from decoded objects, because JSON does not show which strings are byte strings, a type of its own
// in CBOR. CBOR is off by default, and no encoding is cached.

// decoded makes the object in this version with its apiVersion and kind.
func (s *served) decoded(ctx context.Context, o *cache.Object) (runtime.Object, error) {
	obj, err := s.Resource.Decoder.DecodeAs(ctx, o, s.Version)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(s.GVK)
	return obj, nil
}

func (s *served) appendCBOR(ctx context.Context, b []byte, v view) ([]byte, error) {
	obj, err := s.decoded(ctx, v.o)
	if err != nil {
		return b, err
	}
	return scheme.AppendCBOR(b, obj)
}

// writeCBORList answers a list of plain objects. The whole list is in memory, so list refuses long ones before
// (streamed).
func (s *served) writeCBORList(w http.ResponseWriter, r *http.Request, p *page) error {
	meta := map[string]any{"resourceVersion": strconv.FormatInt(p.revision, 10)}
	if p.next != "" {
		meta["continue"] = p.next
	}
	if p.remaining > 0 {
		meta["remainingItemCount"] = p.remaining
	}
	items := make([]any, len(p.objects))
	for i, o := range p.objects {
		obj, err := s.decoded(r.Context(), o)
		if err != nil {
			return err
		}
		s.form.listedCBOR(obj)
		items[i] = obj
	}
	body, err := scheme.AppendCBOR(nil, map[string]any{
		"apiVersion": s.GVK.GroupVersion().String(), "kind": s.Kind.List(), "metadata": meta, "items": items,
	})
	if err != nil {
		return err
	}
	return sendBody(w, r, http.StatusOK, scheme.CBOR, body)
}

// appendCBOREvent appends an event in CBOR. Only plain objects are encoded directly; the other forms are made
// from JSON, as in other responses.
func (st *watchStream) appendCBOREvent(ctx context.Context, b []byte, kind string, o *cache.Object) ([]byte, error) {
	if st.accepted.As == negotiate.Plain {
		obj, err := st.s.decoded(ctx, o)
		if err != nil {
			return b, err
		}
		return scheme.AppendCBOR(b, map[string]any{"type": kind, "object": obj})
	}
	json := st.accepted
	json.Media = scheme.JSON
	doc, err := st.s.appendObject(ctx, openEvent(nil, kind), json, view{o: o})
	if err != nil {
		return b, err
	}
	event, err := scheme.JSONToCBOR(append(doc, '}'))
	return append(b, event...), err
}
