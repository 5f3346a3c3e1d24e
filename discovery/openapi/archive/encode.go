package archive

import (
	"bytes"
	"cmp"
	"crypto/sha512"
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Encode returns an archive of the OpenAPI v2 document and the OpenAPI v3 documents. Reading
// it returns the same bytes.
func Encode(v2 []byte, v3 []Document) ([]byte, error) {
	v3 = slices.SortedFunc(slices.Values(v3), func(a, b Document) int { return cmp.Compare(a.Path, b.Path) })

	// The distinct definitions are numbered in the order of their names, because then neighbours
	// are similar and compress well.
	type split struct {
		head, tail []byte
		members    [][]byte
	}
	splits := make([]split, len(v3))
	numbers := map[string]int{}
	var texts []string
	for i, d := range v3 {
		s := &splits[i]
		schemas, found, err := Find(d.JSON, "components", "schemas")
		if err != nil {
			return nil, err
		}
		if !found {
			s.head = d.JSON
			continue
		}
		members, err := Members(schemas)
		if err != nil {
			return nil, err
		}
		start := bytes.Index(d.JSON, schemas)
		s.head, s.tail = d.JSON[:start+1], d.JSON[start+len(schemas)-1:]
		for _, m := range members {
			s.members = append(s.members, m.Raw)
			if _, seen := numbers[string(m.Raw)]; !seen {
				numbers[string(m.Raw)] = 0
				texts = append(texts, string(m.Raw))
			}
		}
	}
	slices.SortStableFunc(texts, func(a, b string) int { return cmp.Compare(name(a), name(b)) })
	var lens, text []byte
	lens = binary.AppendUvarint(lens, uint64(len(texts)))
	for i, t := range texts {
		numbers[t] = i
		lens = binary.AppendUvarint(lens, uint64(len(t)))
		text = append(text, t...)
	}
	definitions, err := compress(append(lens, text...), nil)
	if err != nil {
		return nil, err
	}

	contents := []byte(magic)
	contents = binary.AppendUvarint(contents, uint64(len(definitions)))
	contents = binary.AppendUvarint(contents, uint64(len(v3)+1))
	frames := definitions
	add := func(d Document, frame []byte) {
		sum := sha512.Sum512(d.JSON)
		contents = binary.AppendUvarint(contents, uint64(len(d.Path)))
		contents = append(contents, d.Path...)
		contents = append(contents, sum[:]...)
		contents = binary.AppendUvarint(contents, uint64(len(d.JSON)))
		contents = binary.AppendUvarint(contents, uint64(len(frame)))
		frames = append(frames, frame...)
	}
	for i, d := range v3 {
		s := splits[i]
		var body []byte
		body = binary.AppendUvarint(body, uint64(len(s.head)))
		body = append(body, s.head...)
		body = binary.AppendUvarint(body, uint64(len(s.members)))
		for _, m := range s.members {
			body = binary.AppendUvarint(body, uint64(numbers[string(m)]))
		}
		body = append(body, s.tail...)
		frame, err := compress(body, nil)
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
