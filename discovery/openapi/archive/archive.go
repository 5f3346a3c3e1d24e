// Package archive is the compact form in which the OpenAPI documents of the
// built-in groups are compiled into the program.
//
// The documents of OpenAPI v3 repeat the same definitions over and over: seven
// megabytes of JSON hold one megabyte of distinct definitions. An archive keeps
// each distinct definition once, in one compressed block; a document is the text
// around its definitions, compressed by itself, and the numbers of the
// definitions. The one document of OpenAPI v2 is compressed with the definitions
// as its dictionary. Nothing is decompressed before it is asked for, and nothing
// that was decompressed is kept.
package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"weak"

	"github.com/klauspost/compress/zstd"
)

const magic = "keelson-openapi-1"

// A Document is one OpenAPI document.
type Document struct {
	Path string // "apis/apps/v1"; empty for the document of OpenAPI v2
	JSON []byte
}

// An Info tells what is known of a document without decompressing it.
type Info struct {
	Path string
	ETag string // hexadecimal SHA-512 of the JSON, in capitals
	Size int    // bytes of JSON
}

type entry struct {
	Info
	frame []byte
}

// An Archive reads an encoded archive. It is safe for concurrent use and holds
// little more than the names of the documents.
type Archive struct {
	v2          entry
	v3          []entry
	definitions []byte // the frame

	mu      sync.Mutex
	decoded weak.Pointer[definitions] // until the next garbage collection
}

// definitions is the decompressed block: the members `"name":{...}` of
// components.schemas, one after another.
type definitions struct {
	text []byte
	ends []int
}

func (d *definitions) member(i int) ([]byte, error) {
	if i < 0 || i >= len(d.ends) {
		return nil, errCorrupt
	}
	start := 0
	if i > 0 {
		start = d.ends[i-1]
	}
	return d.text[start:d.ends[i]], nil
}

var errCorrupt = errors.New("openapi archive: corrupt data")

// Open reads the table of contents. The archive refers to data, which must not
// change.
func Open(data []byte) (*Archive, error) {
	r := reader{data: data}
	if string(r.take(len(magic))) != magic {
		return nil, errCorrupt
	}
	a := &Archive{}
	lens := make([]int, 0, 64)
	definitionsLen := r.uvarint()
	n := r.uvarint()
	if n > len(data) {
		return nil, errCorrupt
	}
	for range n {
		var e entry
		e.Path = string(r.take(r.uvarint()))
		e.ETag = fmt.Sprintf("%X", r.take(64))
		e.Size = r.uvarint()
		lens = append(lens, r.uvarint())
		a.v3 = append(a.v3, e)
	}
	a.definitions = r.take(definitionsLen)
	for i := range a.v3 {
		a.v3[i].frame = r.take(lens[i])
	}
	if r.err != nil || len(a.v3) == 0 {
		return nil, errCorrupt
	}
	last := len(a.v3) - 1
	a.v2, a.v3 = a.v3[last], a.v3[:last:last]
	return a, nil
}

// V3 lists the documents of OpenAPI v3, ordered by path.
func (a *Archive) V3() []Info {
	infos := make([]Info, len(a.v3))
	for i, e := range a.v3 {
		infos[i] = e.Info
	}
	return infos
}

// V2 describes the document of OpenAPI v2.
func (a *Archive) V2() Info { return a.v2.Info }

// ReadV3 assembles the OpenAPI v3 document of a path. The result belongs to the
// caller.
func (a *Archive) ReadV3(path string) ([]byte, error) {
	for _, e := range a.v3 {
		if e.Path == path {
			return a.assemble(e)
		}
	}
	return nil, fmt.Errorf("openapi archive: no document %q", path)
}

// ReadV2 assembles the OpenAPI v2 document. The result belongs to the caller.
func (a *Archive) ReadV2() ([]byte, error) {
	defs, err := a.load()
	if err != nil {
		return nil, err
	}
	return decompress(a.v2.frame, a.v2.Size, defs.text)
}

// Definitions returns the members `"name":{...}` of components.schemas for the names
// given and for all that they refer to, as OpenAPI v3 has them, ordered by name: what
// the document of a group that is not built in needs of those that are.
// Where documents differ in a definition (which of the groups have a kind of that name)
// it is that of the first document, "api/v1". The slices must not be changed.
func (a *Archive) Definitions(names ...string) ([]Member, error) {
	defs, err := a.load()
	if err != nil {
		return nil, err
	}
	byName := make(map[string][]byte, len(defs.ends))
	for i := range defs.ends {
		raw, err := defs.member(i)
		if err != nil {
			return nil, err
		}
		key := string(memberKey(raw))
		if _, seen := byName[key]; !seen {
			byName[key] = raw
		}
	}
	found := map[string]bool{}
	var members []Member
	var add func(name string) error
	add = func(name string) error {
		if found[name] {
			return nil
		}
		found[name] = true
		raw, ok := byName[name]
		if !ok {
			return fmt.Errorf("openapi archive: no definition %q", name)
		}
		key := memberKey(raw)
		members = append(members, Member{Key: key, Value: raw[len(key)+len(`"":`):], Raw: raw})
		for other := range References(raw, RefV3) {
			if err := add(other); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return bytes.Compare(a.Key, b.Key) })
	return members, nil
}

func (a *Archive) assemble(e entry) ([]byte, error) {
	body, err := decompress(e.frame, 0, nil)
	if err != nil {
		return nil, err
	}
	r := reader{data: body}
	head := r.take(r.uvarint())
	n := r.uvarint()
	doc := make([]byte, 0, e.Size)
	doc = append(doc, head...)
	if n > 0 {
		defs, err := a.load()
		if err != nil {
			return nil, err
		}
		for i := range n {
			if i > 0 {
				doc = append(doc, ',')
			}
			m, err := defs.member(r.uvarint())
			if err != nil || r.err != nil {
				return nil, errCorrupt
			}
			doc = append(doc, m...)
		}
	}
	doc = append(doc, r.data...)
	if r.err != nil || len(doc) != e.Size {
		return nil, errCorrupt
	}
	return doc, nil
}

func (a *Archive) load() (*definitions, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.decoded.Value(); d != nil {
		return d, nil
	}
	raw, err := decompress(a.definitions, 0, nil)
	if err != nil {
		return nil, err
	}
	r := reader{data: raw}
	n := r.uvarint()
	if n > len(raw) {
		return nil, errCorrupt
	}
	d := &definitions{ends: make([]int, n)}
	end := 0
	for i := range n {
		end += r.uvarint()
		d.ends[i] = end
	}
	if r.err != nil || end != len(r.data) {
		return nil, errCorrupt
	}
	d.text = r.data
	a.decoded = weak.Make(d)
	return d, nil
}

const dictionaryID = 1

func decompress(frame []byte, size int, dictionary []byte) ([]byte, error) {
	options := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true)}
	if dictionary != nil {
		options = append(options, zstd.WithDecoderDictRaw(dictionaryID, dictionary))
	}
	d, err := zstd.NewReader(nil, options...)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(frame, make([]byte, 0, size))
}

type reader struct {
	data []byte
	err  error
}

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.data)
	if n <= 0 || v > 1<<31 {
		r.err, r.data = errCorrupt, nil
		return 0
	}
	r.data = r.data[n:]
	return int(v)
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.data) {
		r.err, r.data = errCorrupt, nil
		return nil
	}
	b := r.data[:n:n]
	r.data = r.data[n:]
	return b
}
