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
	raw, meta, err := open(value)
	apiVersion, kind, _ := Pair(meta)
	return Envelope{APIVersion: string(apiVersion), Kind: string(kind), Raw: raw}, err
}

// Raw returns the message of the object in an enveloped value. It is a part of value.
func Raw(value []byte) ([]byte, error) {
	raw, _, err := open(value)
	return raw, err
}

// open returns the message of the object in an enveloped value, and its TypeMeta.
func open(value []byte) (raw, meta []byte, err error) {
	if len(value) < len(EnvelopePrefix) || string(value[:len(EnvelopePrefix)]) != EnvelopePrefix {
		return nil, nil, errors.New("not a protobuf object: the prefix is missing")
	}
	for rest := value[len(EnvelopePrefix):]; len(rest) > 0; {
		number, kind, value, size, err := NextField(rest)
		if err != nil {
			return raw, meta, err
		}
		switch {
		case kind != protowire.BytesType:
		case number == unknownRaw:
			raw = value
		case number == unknownTypeMeta:
			meta = value
		}
		rest = rest[size:]
	}
	return raw, meta, nil
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
		number, kind, value, size, err := NextField(raw[pos:])
		if err != nil {
			return nil, 0, 0, err
		}
		if number == objectMeta && kind == protowire.BytesType {
			return value, pos, pos + size, nil
		}
		pos += size
	}
	return nil, 0, 0, ErrMalformed
}

// versionSpan returns the positions of the field resourceVersion in an ObjectMeta. If the
// field is missing, both are the position where it belongs.
func versionSpan(meta []byte) (start, end int, err error) {
	place := -1
	for pos := 0; pos < len(meta); {
		number, _, _, size, err := NextField(meta[pos:])
		if err != nil {
			return 0, 0, err
		}
		if number == metaResourceVersion {
			return pos, pos + size, nil
		}
		if number > metaResourceVersion && place < 0 {
			place = pos
		}
		pos += size
	}
	if place < 0 {
		place = len(meta)
	}
	return place, place, nil
}

// EachLabel calls f for each label in an ObjectMeta message. The slices are parts of meta.
func EachLabel(meta []byte, f func(key, value []byte)) error {
	for len(meta) > 0 {
		number, kind, entry, size, err := NextField(meta)
		if err != nil {
			return err
		}
		if number == metaLabels && kind == protowire.BytesType {
			key, value, _ := Pair(entry)
			f(key, value)
		}
		if number > metaLabels {
			return nil
		}
		meta = meta[size:]
	}
	return nil
}

// Pair returns the length-delimited fields 1 and 2 of a message, such as the key and the value of an entry of a map. If the
// message is malformed, it also returns what it has read.
func Pair(message []byte) (first, second []byte, err error) {
	for len(message) > 0 {
		number, kind, value, size, err := NextField(message)
		if err != nil {
			return first, second, err
		}
		if kind != protowire.BytesType {
			value = nil
		}
		switch number {
		case 1:
			first = value
		case 2:
			second = value
		}
		message = message[size:]
	}
	return first, second, nil
}

// Value is a field found by Find.
type Value struct {
	Found  bool
	Bytes  []byte // the value of a length-delimited field
	Number uint64 // the value of a varint
}

// Find follows a path of field numbers from the object's message to a value. It returns the first element of a repeated
// field, and the last value of a scalar field that occurs more than once, like decoders.
func Find(raw []byte, path []int32) (Value, error) {
	var v Value
	if len(path) == 0 {
		return Value{Found: true, Bytes: raw}, nil
	}
	for rest := raw; len(rest) > 0; {
		number, kind, value, size, err := NextField(rest)
		if err != nil {
			return v, err
		}
		rest = rest[size:]
		switch {
		case number != path[0]:
		case kind == protowire.VarintType:
			v = Value{Found: true, Number: Varint(value)}
		case kind == protowire.BytesType && !v.Found:
			v = Value{Found: true, Bytes: value}
		}
	}
	if !v.Found || len(path) == 1 {
		return v, nil
	}
	return Find(v.Bytes, path[1:])
}

// NextField returns the first field of a message that is not empty. value is the content of a length-delimited field,
// or the encoded value of another field; it shares memory with the message. The next field begins after size bytes. The
// only error is ErrMalformed.
func NextField(message []byte) (number int32, kind protowire.Type, value []byte, size int, err error) {
	num, kind, head := protowire.ConsumeTag(message)
	if head < 0 {
		return 0, 0, nil, 0, ErrMalformed
	}
	n := 0
	if kind == protowire.BytesType {
		value, n = protowire.ConsumeBytes(message[head:])
	} else if n = protowire.ConsumeFieldValue(num, kind, message[head:]); n >= 0 {
		value = message[head : head+n]
	}
	if n < 0 {
		return 0, 0, nil, 0, ErrMalformed
	}
	return int32(num), kind, value, head + n, nil
}

// Varint returns the value of a varint of NextField.
func Varint(value []byte) uint64 {
	v, _ := protowire.ConsumeVarint(value)
	return v
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
