package openapi

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"slices"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/keelson-dev/keelson/internal/api/discovery/openapi/archive"
)

// membersPerBatch and bytesPerBatch limit the members of a document that are converted to protobuf together,
// because a parsed document takes about thirty times its size in memory. In protobuf, the encodings of two parts
// of a map, one after the other, are the encoding of the whole map.
const (
	membersPerBatch = 16
	bytesPerBatch   = 256 << 10
)

// Field numbers of the messages.
const (
	v2Paths, v2Definitions = 8, 9
	v3Paths, v3Components  = 4, 5
	componentsSchemas      = 1
)

// encoder encodes the members of a JSON object.
type encoder = func(object []byte) ([]byte, error)

func encodeV2Paths(object []byte) ([]byte, error) {
	d, err := openapiv2.ParseDocument(
		slices.Concat([]byte(`{"swagger":"2.0","info":{"title":"","version":""},"paths":`), object, []byte("}")))
	if err != nil {
		return nil, err
	}
	return proto.Marshal(d.Paths)
}

func encodeV2Definitions(object []byte) ([]byte, error) {
	d, err := openapiv2.ParseDocument(slices.Concat(
		[]byte(`{"swagger":"2.0","info":{"title":"","version":""},"paths":{},"definitions":`), object, []byte("}")))
	if err != nil {
		return nil, err
	}
	return proto.Marshal(d.Definitions)
}

// writeProtobuf writes the document as a message openapi.v2.Document.
func (p *v2Parts) writeProtobuf(out io.Writer) error {
	paths, err := encodeInBatches(p.paths, encodeV2Paths)
	if err != nil {
		return err
	}
	definitions, err := encodeInBatches(p.definitions, encodeV2Definitions)
	if err != nil {
		return err
	}
	empty := v2Parts{members: p.members}
	var frame bytes.Buffer
	if err := empty.writeJSON(&frame); err != nil {
		return err
	}
	d, err := openapiv2.ParseDocument(frame.Bytes())
	if err != nil {
		return err
	}
	d.Paths, d.Definitions = nil, nil
	rest, err := proto.Marshal(d)
	if err != nil {
		return err
	}
	return writeFields(out, rest, []field{{v2Paths, paths}, {v2Definitions, definitions}})
}

// writeV3Protobuf writes an OpenAPI v3 document as a message openapi.v3.Document.
func writeV3Protobuf(out io.Writer, text []byte) error {
	pathsText, _, err := archive.Find(text, "paths")
	if err != nil {
		return err
	}
	schemasText, hasSchemas, err := archive.Find(text, "components", "schemas")
	if err != nil {
		return err
	}
	pathMembers, err := archive.Members(pathsText)
	if err != nil {
		return err
	}
	paths, err := encodeInBatches(pathMembers, func(object []byte) ([]byte, error) {
		d, err := openapiv3.ParseDocument(
			slices.Concat([]byte(`{"openapi":"3.0.0","info":{"title":"","version":""},"paths":`), object, []byte("}")))
		if err != nil {
			return nil, err
		}
		return proto.Marshal(d.Paths)
	})
	if err != nil {
		return err
	}
	frame := bytes.Replace(text, pathsText, []byte("{}"), 1)
	var schemas []byte
	if hasSchemas {
		frame = bytes.Replace(frame, schemasText, []byte("{}"), 1)
		schemaMembers, err := archive.Members(schemasText)
		if err != nil {
			return err
		}
		schemas, err = encodeInBatches(schemaMembers, func(object []byte) ([]byte, error) {
			d, err := openapiv3.ParseDocument(
				slices.Concat([]byte(`{"openapi":"3.0.0","info":{"title":"","version":""},"paths":{},"components":{"schemas":`),
					object, []byte("}}")))
			if err != nil {
				return nil, err
			}
			return proto.Marshal(d.Components.Schemas)
		})
		if err != nil {
			return err
		}
	}
	d, err := openapiv3.ParseDocument(frame)
	if err != nil {
		return err
	}
	fields := []field{{v3Paths, paths}}
	if d.Components != nil {
		d.Components.Schemas = nil
		rest, err := proto.Marshal(d.Components)
		if err != nil {
			return err
		}
		var components bytes.Buffer
		var inner []field
		if hasSchemas {
			inner = []field{{componentsSchemas, schemas}}
		}
		if err := writeFields(&components, rest, inner); err != nil {
			return err
		}
		fields = append(fields, field{v3Components, components.Bytes()})
	}
	d.Paths, d.Components = nil, nil
	rest, err := proto.Marshal(d)
	if err != nil {
		return err
	}
	return writeFields(out, rest, fields)
}

func encodeInBatches(members []archive.Member, encode encoder) ([]byte, error) {
	var encoded []byte
	for batch := range batches(members) {
		if len(batch[0].Raw) > maxMember {
			return nil, fmt.Errorf("%.100q has more than %d bytes", batch[0].Key, maxMember)
		}
		b, err := encode(objectOf(batch))
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, b...)
	}
	return encoded, nil
}

// batches yields the members that are converted together. A batch has at most membersPerBatch members and
// bytesPerBatch bytes; a member that is larger is a batch of its own.
func batches(members []archive.Member) iter.Seq[[]archive.Member] {
	return func(yield func([]archive.Member) bool) {
		for first := 0; first < len(members); {
			end, size := first+1, len(members[first].Raw)
			for end < len(members) && end-first < membersPerBatch {
				if size += len(members[end].Raw); size > bytesPerBatch {
					break
				}
				end++
			}
			if !yield(members[first:end]) {
				return
			}
			first = end
		}
	}
}

// objectOf returns the JSON object with members.
func objectOf(members []archive.Member) []byte {
	w := &objectWriter{}
	for _, m := range members {
		w.member(m.Raw)
	}
	return w.end()
}

// A field is an encoded message and the number of the field that contains it.
type field struct {
	number  protowire.Number
	message []byte
}

// writeFields writes the fields of a message in the order of their numbers. rest is the
// encoding of a part of the message; fields are the other fields, sorted, with numbers that
// rest does not have.
func writeFields(out io.Writer, rest []byte, fields []field) error {
	w := &stickyWriter{out: out}
	emit := func(f field) {
		w.write(protowire.AppendVarint(protowire.AppendTag(nil, f.number, protowire.BytesType), uint64(len(f.message)))...)
		w.write(f.message...)
	}
	for len(rest) > 0 {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		for len(fields) > 0 && fields[0].number < number {
			emit(fields[0])
			fields = fields[1:]
		}
		w.write(rest[:n]...)
		rest = rest[n:]
	}
	for _, f := range fields {
		emit(f)
	}
	return w.err
}
