// Package archive implements the compact format in which the program contains the OpenAPI
// documents of the built-in groups.
//
// The OpenAPI v3 documents repeat the same definitions many times: seven megabytes of JSON
// contain one megabyte of distinct definitions. An archive has each distinct definition once, in
// one compressed block. A v3 document is stored as the compressed text around its definitions,
// and the numbers of the definitions. The OpenAPI v2 document is compressed with the definitions
// as dictionary. Data is decompressed only when it is requested, and is not kept afterwards.
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
	Path string // such as "apis/apps/v1"; empty for the OpenAPI v2 document
	JSON []byte
}

// An Info describes a document. It is known without decompressing the document.
type Info struct {
	Path string
	ETag string // hexadecimal SHA-512 of the JSON, in capitals
	Size int    // bytes of JSON
}

type entry struct {
	Info
	frame []byte
}

// An Archive reads an encoded archive. It is safe for concurrent use. It keeps little more
// than the names of the documents in memory.
type Archive struct {
	v2          entry
	v3          []entry
	definitions []byte // compressed

	mu      sync.Mutex
	decoded weak.Pointer[definitions] // valid until the next garbage collection
}

// definitions is the decompressed block of definitions: the members `"name":{...}` of
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

// Open reads the table of contents. The archive refers to data, which must not change.
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

// V3 returns the OpenAPI v3 documents, sorted by path.
func (a *Archive) V3() []Info {
	infos := make([]Info, len(a.v3))
	for i, e := range a.v3 {
		infos[i] = e.Info
	}
	return infos
}

// V2 returns the OpenAPI v2 document.
func (a *Archive) V2() Info { return a.v2.Info }

// ReadV3 returns the text of the OpenAPI v3 document of a path. The caller owns the result.
func (a *Archive) ReadV3(path string) ([]byte, error) {
	for _, e := range a.v3 {
		if e.Path == path {
			return a.assemble(e)
		}
	}
	return nil, fmt.Errorf("openapi archive: no document %q", path)
}

// ReadV2 returns the text of the OpenAPI v2 document. The caller owns the result.
func (a *Archive) ReadV2() ([]byte, error) {
	defs, err := a.load()
	if err != nil {
		return nil, err
	}
	return decompress(a.v2.frame, a.v2.Size, defs.text)
}

// Definitions returns the named definitions of OpenAPI v3 and all definitions that they refer
// to, sorted by name, as members `"name":{...}`. The document of a group that is not built in
// needs them. If documents have different definitions with the same name, the definition of
// the first document, "api/v1", is returned. The slices must not be changed.
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
