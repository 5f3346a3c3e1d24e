// Package wire reads and changes encoded objects without decoding them: the protobuf messages of
// built-in kinds (with the field numbers of the published API types), the envelope around them, and
// JSON documents.
package wire

import (
	"encoding/binary"
	"errors"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// EnvelopePrefix is the beginning of every protobuf object, stored or served: a magic number,
// followed by a message runtime.Unknown (API conventions, "Protobuf encoding").
const EnvelopePrefix = "k8s\x00"

// Field numbers of runtime.Unknown and runtime.TypeMeta.
const (
	unknownTypeMeta        = 1
	unknownRaw             = 2
	unknownContentEncoding = 3
	unknownContentType     = 4
	typeMetaAPIVersion     = 1
	typeMetaKind           = 2
)

// Field numbers of ObjectMeta; an object's metadata is its field 1.
const (
	objectMeta          = 1
	metaResourceVersion = 6
	metaLabels          = 11
)

// ErrMalformed means that bytes are not a valid protobuf message.
var ErrMalformed = errors.New("malformed protobuf message")

// Envelope has the parts of a protobuf object.
type Envelope struct {
	APIVersion, Kind string
	Raw              []byte // the object's message
}

// OpenEnvelope returns the parts of an enveloped value. Raw is a part of value.
func OpenEnvelope(value []byte) (Envelope, error) {
	var e Envelope
	if len(value) < len(EnvelopePrefix) || string(value[:len(EnvelopePrefix)]) != EnvelopePrefix {
		return e, errors.New("not a protobuf object: the prefix is missing")
	}
	err := fields(value[len(EnvelopePrefix):], func(num protowire.Number, typ protowire.Type, val []byte) bool {
		switch {
		case num == unknownRaw && typ == protowire.BytesType:
			e.Raw = val
		case num == unknownTypeMeta && typ == protowire.BytesType:
			_ = fields(val, func(num protowire.Number, typ protowire.Type, val []byte) bool {
				switch num {
				case typeMetaAPIVersion:
					e.APIVersion = string(val)
				case typeMetaKind:
					e.Kind = string(val)
				}
				return true
			})
		}
		return true
	})
	return e, err
}

// Raw returns the message of the object in an enveloped value. It is a part of value.
func Raw(value []byte) ([]byte, error) {
	if len(value) < len(EnvelopePrefix) || string(value[:len(EnvelopePrefix)]) != EnvelopePrefix {
		return nil, errors.New("not a protobuf object: the prefix is missing")
	}
	var raw []byte
	err := fields(value[len(EnvelopePrefix):], func(num protowire.Number, typ protowire.Type, val []byte) bool {
		if num == unknownRaw && typ == protowire.BytesType {
			raw = val
		}
		return true
	})
	return raw, err
}

// EnvelopeHead is the constant beginning of the envelopes of one kind.
type EnvelopeHead []byte

// NewEnvelopeHead returns the head for an apiVersion and kind.
func NewEnvelopeHead(apiVersion, kind string) EnvelopeHead {
	var meta []byte
	meta = appendBytes(meta, typeMetaAPIVersion, apiVersion)
	meta = appendBytes(meta, typeMetaKind, kind)
	return EnvelopeHead(appendBytes([]byte(EnvelopePrefix), unknownTypeMeta, string(meta)))
}

// Size returns the size of an envelope with a message of n bytes.
func (h EnvelopeHead) Size(n int) int {
	return len(h) + 1 + protowire.SizeBytes(n) + envelopeTailSize
}

// envelopeTail has the empty fields contentEncoding and contentType, which kube-apiserver
// writes.
var envelopeTail = []byte{unknownContentEncoding<<3 | 2, 0, unknownContentType<<3 | 2, 0}

const envelopeTailSize = 4

// AppendOpen appends the part of the envelope before the message, which has n bytes and must
// follow.
func (h EnvelopeHead) AppendOpen(b []byte, n int) []byte {
	b = append(b, h...)
	b = append(b, unknownRaw<<3|2)
	return binary.AppendUvarint(b, uint64(n))
}

// AppendClose appends the part of the envelope after the message.
func (h EnvelopeHead) AppendClose(b []byte) []byte { return append(b, envelopeTail...) }

// Append appends a whole envelope with the message raw.
func (h EnvelopeHead) Append(b, raw []byte) []byte {
	b = h.AppendOpen(b, len(raw))
	b = append(b, raw...)
	return h.AppendClose(b)
}

// Stamp returns the message of an object with metadata.resourceVersion set to revision. raw is
// not changed.
func Stamp(raw []byte, revision int64) ([]byte, error) {
	meta, start, end, err := metaSpan(raw)
	if err != nil {
		return nil, err
	}
	rvStart, rvEnd, err := versionSpan(meta)
	if err != nil {
		return nil, err
	}
	var digits [20]byte
	rv := strconv.AppendInt(digits[:0], revision, 10)
	field := 2 + len(rv) // tag, length (under 128), digits
	metaLen := len(meta) - (rvEnd - rvStart) + field
	out := make([]byte, 0, len(raw)-(end-start)+1+protowire.SizeBytes(metaLen))
	out = append(out, raw[:start]...)
	out = append(out, objectMeta<<3|2)
	out = binary.AppendUvarint(out, uint64(metaLen))
	out = append(out, meta[:rvStart]...)
	out = append(out, metaResourceVersion<<3|2, byte(len(rv)))
	out = append(out, rv...)
	out = append(out, meta[rvEnd:]...)
	return append(out, raw[end:]...), nil
}

// Metadata returns the ObjectMeta message of the object.
func Metadata(raw []byte) ([]byte, error) {
	meta, _, _, err := metaSpan(raw)
	return meta, err
}

// MetadataField returns field 1 of raw with its tag and length.
func MetadataField(raw []byte) ([]byte, error) {
	_, start, end, err := metaSpan(raw)
	if err != nil {
		return nil, err
	}
	return raw[start:end], nil
}

// metaSpan returns the ObjectMeta message, and the positions where its field begins and ends
// in raw.
func metaSpan(raw []byte) (meta []byte, start, end int, err error) {
	for pos := 0; pos < len(raw); {
		num, typ, n := protowire.ConsumeTag(raw[pos:])
		if n < 0 {
			return nil, 0, 0, ErrMalformed
		}
		m := protowire.ConsumeFieldValue(num, typ, raw[pos+n:])
		if m < 0 {
			return nil, 0, 0, ErrMalformed
		}
		if num == objectMeta && typ == protowire.BytesType {
			val, _ := protowire.ConsumeBytes(raw[pos+n:])
			return val, pos, pos + n + m, nil
		}
		pos += n + m
	}
	return nil, 0, 0, ErrMalformed
}

// versionSpan returns the positions of the field resourceVersion in an ObjectMeta. If the
// field is missing, both are the position where it belongs.
func versionSpan(meta []byte) (start, end int, err error) {
	place := -1
	for pos := 0; pos < len(meta); {
		num, typ, n := protowire.ConsumeTag(meta[pos:])
		if n < 0 {
			return 0, 0, ErrMalformed
		}
		m := protowire.ConsumeFieldValue(num, typ, meta[pos+n:])
		if m < 0 {
			return 0, 0, ErrMalformed
		}
		if num == metaResourceVersion {
			return pos, pos + n + m, nil
		}
		if num > metaResourceVersion && place < 0 {
			place = pos
		}
		pos += n + m
	}
	if place < 0 {
		place = len(meta)
	}
	return place, place, nil
}

// EachLabel calls f for each label in an ObjectMeta message. The slices are parts of meta.
func EachLabel(meta []byte, f func(key, value []byte)) error {
	return fields(meta, func(num protowire.Number, typ protowire.Type, val []byte) bool {
		if num == metaLabels && typ == protowire.BytesType {
			var k, v []byte
			_ = fields(val, func(num protowire.Number, _ protowire.Type, val []byte) bool {
				switch num {
				case 1:
					k = val
				case 2:
					v = val
				}
				return true
			})
			f(k, v)
		}
		return num <= metaLabels
	})
}

// Value is a field found by Find.
type Value struct {
	Found  bool
	Bytes  []byte // the value of a length-delimited field
	Number uint64 // the value of a varint
}

// Find follows a path of field numbers from the object's message to a value. Of a repeated
// field it returns the first element. Of a scalar field that occurs more than once it returns
// the last, like decoders.
func Find(raw []byte, path []int32) (Value, error) {
	var v Value
	if len(path) == 0 {
		return Value{Found: true, Bytes: raw}, nil
	}
	err := fieldsNumbers(raw, protowire.Number(path[0]), func(typ protowire.Type, val []byte, number uint64) {
		if v.Found && typ == protowire.BytesType {
			return
		}
		v = Value{Found: true, Bytes: val, Number: number}
	})
	if err != nil || !v.Found || len(path) == 1 {
		return v, err
	}
	return Find(v.Bytes, path[1:])
}

// EachField calls f for each length-delimited field and each varint of a message, until f returns false. Value.Bytes is a
// part of the message.
func EachField(message []byte, f func(number int32, v Value) bool) error {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return ErrMalformed
		}
		message = message[n:]
		m := protowire.ConsumeFieldValue(num, typ, message)
		if m < 0 {
			return ErrMalformed
		}
		v := Value{Found: true}
		switch typ {
		case protowire.BytesType:
			v.Bytes, _ = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			v.Number, _ = protowire.ConsumeVarint(message)
		}
		if !f(int32(num), v) {
			return nil
		}
		message = message[m:]
	}
	return nil
}

func fieldsNumbers(b []byte, want protowire.Number, f func(typ protowire.Type, val []byte, number uint64)) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		m := protowire.ConsumeFieldValue(num, typ, b)
		if m < 0 {
			return ErrMalformed
		}
		if num == want {
			switch typ {
			case protowire.BytesType:
				val, _ := protowire.ConsumeBytes(b)
				f(typ, val, 0)
			case protowire.VarintType:
				number, _ := protowire.ConsumeVarint(b)
				f(typ, nil, number)
			}
		}
		b = b[m:]
	}
	return nil
}

// fields calls f for each field of a message, until f returns false. val has the bytes of a
// length-delimited field.
func fields(b []byte, f func(num protowire.Number, typ protowire.Type, val []byte) bool) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		m := protowire.ConsumeFieldValue(num, typ, b)
		if m < 0 {
			return ErrMalformed
		}
		var val []byte
		if typ == protowire.BytesType {
			val, _ = protowire.ConsumeBytes(b)
		}
		if !f(num, typ, val) {
			return nil
		}
		b = b[m:]
	}
	return nil
}

func appendBytes(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

// AppendListHead appends the fields of a list message before its items: a ListMeta with
// selfLink, resourceVersion, continue and, if positive, remainingItemCount, like
// kube-apiserver's.
func AppendListHead(b []byte, resourceVersion, continueToken string, remaining int64) []byte {
	var meta []byte
	meta = appendBytes(meta, 1, "")
	meta = appendBytes(meta, 2, resourceVersion)
	meta = appendBytes(meta, 3, continueToken)
	if remaining > 0 {
		meta = protowire.AppendTag(meta, 4, protowire.VarintType)
		meta = protowire.AppendVarint(meta, uint64(remaining))
	}
	return appendBytes(b, 1, string(meta))
}

// ItemHeadSize returns the size of the head of an item of n bytes.
func ItemHeadSize(n int) int { return 1 + protowire.SizeBytes(n) - n }

// AppendItemHead appends the tag and the length of a list item of n bytes, which must follow.
func AppendItemHead(b []byte, n int) []byte {
	b = append(b, 2<<3|2)
	return binary.AppendUvarint(b, uint64(n))
}

// WatchEventHead returns the part of a WatchEvent message before its object of n bytes: the
// type, and the head of the object's RawExtension.
func WatchEventHead(kind string, n int) []byte {
	head := appendBytes(make([]byte, 0, len(kind)+24), 1, kind)
	head = protowire.AppendTag(head, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(1+protowire.SizeBytes(n)))
	head = protowire.AppendTag(head, 1, protowire.BytesType)
	return protowire.AppendVarint(head, uint64(n))
}
