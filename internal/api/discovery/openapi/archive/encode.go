package archive

import (
	"bytes"
	"cmp"
	"crypto/sha512"
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Encode returns an archive of the OpenAPI v2 document and the OpenAPI v3 documents. Reading the archive returns
// the same bytes.
func Encode(v2 []byte, v3 []Document) ([]byte, error) {
	v3 = slices.SortedFunc(slices.Values(v3), func(a, b Document) int { return cmp.Compare(a.Path, b.Path) })
	splits := make([]splitDocument, len(v3))
	for i, d := range v3 {
		var err error
		if splits[i], err = splitSchemas(d.JSON); err != nil {
			return nil, err
		}
	}
	lengths, text, numbers := distinctSchemas(splits)
	definitions, err := compress(append(lengths, text...), nil)
	if err != nil {
		return nil, err
	}

	contents := []byte(magic)
	contents = binary.AppendUvarint(contents, uint64(len(definitions)))
	contents = binary.AppendUvarint(contents, uint64(len(v3)+1))
	frames := definitions
	add := func(d Document, frame []byte) {
		contents = appendEntry(contents, d, len(frame))
		frames = append(frames, frame...)
	}
	for i, d := range v3 {
		frame, err := compress(splits[i].encode(numbers), nil)
		if err != nil {
			return nil, err
		}
		add(d, frame)
	}
	frame, err := compress(v2, text)
	if err != nil {
		return nil, err
	}
	add(Document{JSON: v2}, frame)
	return append(contents, frames...), nil
}

// splitDocument is an OpenAPI v3 document without the members of components.schemas.
type splitDocument struct {
	head, tail []byte   // the text before and after the schemas
	schemas    [][]byte // the members, in their order; empty if the document has no schemas
}

// splitSchemas splits a document. The parts are slices of it.
func splitSchemas(document []byte) (splitDocument, error) {
	schemas, found, err := Find(document, "components", "schemas")
	if err != nil {
		return splitDocument{}, err
	}
	if !found {
		return splitDocument{head: document}, nil
	}
	members, err := Members(schemas)
	if err != nil {
		return splitDocument{}, err
	}
	start := bytes.Index(document, schemas)
	s := splitDocument{head: document[:start+1], tail: document[start+len(schemas)-1:]}
	for _, m := range members {
		s.schemas = append(s.schemas, m.Raw)
	}
	return s, nil
}

// encode returns the document with the numbers of its schemas instead of the schemas.
func (s splitDocument) encode(numbers map[string]int) []byte {
	var body []byte
	body = binary.AppendUvarint(body, uint64(len(s.head)))
	body = append(body, s.head...)
	body = binary.AppendUvarint(body, uint64(len(s.schemas)))
	for _, schema := range s.schemas {
		body = binary.AppendUvarint(body, uint64(numbers[string(schema)]))
	}
	return append(body, s.tail...)
}

// distinctSchemas returns the number of distinct schemas and their lengths, their concatenated texts, and the number of
// each schema. They are numbered in the order of their names, because then neighbours are similar and compress well.
func distinctSchemas(documents []splitDocument) (lengths, text []byte, numbers map[string]int) {
	numbers = map[string]int{}
	var schemas []string
	for _, d := range documents {
		for _, schema := range d.schemas {
			if _, seen := numbers[string(schema)]; !seen {
				numbers[string(schema)] = 0
				schemas = append(schemas, string(schema))
			}
		}
	}
	slices.SortStableFunc(schemas, func(a, b string) int { return cmp.Compare(name(a), name(b)) })
	lengths = binary.AppendUvarint(lengths, uint64(len(schemas)))
	for i, schema := range schemas {
		numbers[schema] = i
		lengths = binary.AppendUvarint(lengths, uint64(len(schema)))
		text = append(text, schema...)
	}
	return lengths, text, numbers
}

// appendEntry appends the entry of a document to the table of contents: its path, checksum, length, and the length of
// its frame.
func appendEntry(contents []byte, d Document, frame int) []byte {
	sum := sha512.Sum512(d.JSON)
	contents = binary.AppendUvarint(contents, uint64(len(d.Path)))
	contents = append(contents, d.Path...)
	contents = append(contents, sum[:]...)
	contents = binary.AppendUvarint(contents, uint64(len(d.JSON)))
	return binary.AppendUvarint(contents, uint64(frame))
}

// name returns the name of a schema, given the text of its member.
func name(member string) string {
	return string(memberKey([]byte(member)))
}

func compress(data, dictionary []byte) ([]byte, error) {
	options := []zstd.EOption{
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithWindowSize(8 << 20),
		zstd.WithEncoderCRC(false),
	}
	if dictionary != nil {
		options = append(options, zstd.WithEncoderDictRaw(dictionaryID, dictionary))
	}
	e, err := zstd.NewWriter(nil, options...)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.EncodeAll(data, nil), nil
}
