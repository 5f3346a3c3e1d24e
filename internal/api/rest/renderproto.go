package rest

import (
	"context"
	"encoding/binary"
	"net/http"
	"strconv"

	"github.com/keelson-dev/keelson/internal/api/rest/negotiate"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

var statusProto = wire.NewEnvelopeHead("v1", "Status")

// appendProtoObject appends an object, or its metadata, in the envelope that tells a client the kind: a protobuf
// message does not name its type.
func (s *served) appendProtoObject(ctx context.Context, b []byte, accepted negotiate.Accepted, v view) ([]byte, error) {
	if accepted.As == negotiate.PartialMetadata {
		meta, err := s.Resource.Renderer.MetadataProto(ctx, v.o)
		if err != nil {
			return b, err
		}
		return wire.NewEnvelopeHead("meta.k8s.io/"+accepted.AsVersion, "PartialObjectMetadata").Append(b, meta), nil
	}
	if err := s.form.checkFormat(accepted); err != nil {
		return b, err
	}
	raw, err := s.Resource.Renderer.ItemProto(ctx, v.o, s.Version)
	if err != nil {
		return b, err
	}
	return s.objectProto.Append(b, raw), nil
}

// writeProtoList writes a list as protobuf. The envelope begins with the length of its content, which is the sum of the
// lengths of the items. So each item is asked for twice, first for its length.
func (s *served) writeProtoList(w http.ResponseWriter, r *http.Request, accepted negotiate.Accepted, p *page) error {
	partial := accepted.As == negotiate.PartialMetadataList
	head, meta := s.protoListHead(accepted, p)
	size := len(meta)
	for _, o := range p.objects {
		raw, err := s.listedProto(r.Context(), o, partial)
		if err != nil {
			return err
		}
		size += len(raw) + wire.ItemHeadSize(len(raw))
	}
	out, err := newStream(w, r, scheme.Protobuf, size)
	if err != nil {
		return err
	}
	buf := getBuffer()
	defer putBuffer(buf)
	b := head.AppendOpen((*buf)[:0], size)
	b = append(b, meta...)
	for _, o := range p.objects {
		raw, err := s.listedProto(r.Context(), o, partial)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if b, err = out.item(wire.AppendItemHead(b, len(raw)), raw); err != nil {
			break // the client is gone
		}
	}
	b = head.AppendClose(b)
	_, _ = out.flush(b)
	out.close()
	return nil
}

// protoListHead returns the envelope of a list and the fields before its items.
func (s *served) protoListHead(accepted negotiate.Accepted, p *page) (wire.EnvelopeHead, []byte) {
	version := ""
	if p.revision != 0 {
		version = strconv.FormatInt(p.revision, 10)
	}
	meta := wire.AppendListHead(nil, version, p.next, p.remaining)
	if accepted.As == negotiate.PartialMetadataList {
		return wire.NewEnvelopeHead("meta.k8s.io/"+accepted.AsVersion, "PartialObjectMetadataList"), meta
	}
	return s.listProto, meta
}

// listedProto is the message of a list's item.
func (s *served) listedProto(ctx context.Context, o *cache.Object, partial bool) ([]byte, error) {
	if partial {
		return s.Resource.Renderer.MetadataProto(ctx, o)
	}
	return s.Resource.Renderer.ItemProto(ctx, o, s.Version)
}

// appendProtoEvent appends a protobuf event: a length-prefixed WatchEvent message
// whose object is enveloped. The length is a big-endian number of 4 bytes, which the clients of streams expect
// (the framer of apimachinery).
func (st *watchStream) appendProtoEvent(b []byte, kind string, object func([]byte) ([]byte, error)) ([]byte, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	raw, err := object((*buf)[:0])
	if err != nil {
		return b, err
	}
	*buf = raw
	head := wire.WatchEventHead(kind, len(raw))
	b = binary.BigEndian.AppendUint32(b, uint32(len(head)+len(raw)))
	b = append(b, head...)
	return append(b, raw...), nil
}
