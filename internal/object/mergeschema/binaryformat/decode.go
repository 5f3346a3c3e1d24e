// Package binaryformat stores the types of a structured-merge-diff schema in a read-only string, and decodes only the
// types of requested kinds. decode.go reads the format, encode.go writes it.
//
// The data of all built-in kinds is part of the executable, so an unused kind takes no heap. The format is
//
//	magic
//	4 x uint32: the numbers of kinds, types, atoms and strings
//	kinds:   4 x uint16 each: the strings group, version and kind, and the type; sorted by the strings
//	types:   2 x uint16 each: the string name, and the atom; sorted by name
//	atoms:   1 x uint32 each: the end of its encoding in the encoded atoms
//	strings: 1 x uint32 each: its end in the texts
//	the encoded atoms, the texts of the strings
//
// with integers in little-endian order. Strings, types and atoms are referred to by their number in their table, from 0
// on. Decoded strings share the memory of the data.
//
// Example: a schema with the kind v1 ConfigMap has the strings "" (number 0), "v1", "ConfigMap" and others, one entry
// of kinds with the numbers of "", "v1", "ConfigMap" and of the type, and one entry of types with the number of the
// type's name and of its atom.
package binaryformat

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const magic = "keelson-schema-1"

// The index of a scalar or relationship is its number in the format.
var (
	scalars       = [...]schema.Scalar{"", schema.Numeric, schema.String, schema.Boolean, schema.Untyped}
	relationships = [...]schema.ElementRelationship{"", schema.Associative, schema.Atomic, schema.Separable}
)

// The first byte of an atom contains the number of its scalar and these flags.
const (
	scalarMask = 0x0f
	hasList    = 0x10
	hasMap     = 0x20
)

// The first byte of a reference to a type contains these flags.
const (
	isNamed = 1 << iota
	isInlined
	overrides
	isNullable
)

// A Kind is a group, version and kind.
type Kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func (k Kind) compare(other Kind) int {
	return cmp.Or(
		cmp.Compare(k.Group, other.Group), cmp.Compare(k.Version, other.Version), cmp.Compare(k.Kind, other.Kind),
	)
}

var errCorrupt = errors.New("merge schemas: corrupt data")

// Types decodes types on demand. Decoded types stay in memory and are shared by the kinds that refer to them. Its
// methods may be called concurrently.
type Types struct {
	kinds, types           string // tables
	atomEnds, stringEnds   string
	atomTexts, stringTexts string

	mu      sync.Mutex
	atoms   map[int]schema.Atom          // guarded by mu
	parsers map[Kind]typed.ParseableType // guarded by mu
}

// Open returns the types in data. It checks only the sizes of the tables; the caller must check the content of the data
// in a test.
func Open(data string) (*Types, error) {
	const header = len(magic) + 16
	if len(data) < header || data[:len(magic)] != magic {
		return nil, errCorrupt
	}
	t := &Types{atoms: map[int]schema.Atom{}, parsers: map[Kind]typed.ParseableType{}}
	rest := data[header:]
	for i, table := range []struct {
		at    *string
		width int
	}{{&t.kinds, 8}, {&t.types, 4}, {&t.atomEnds, 4}, {&t.stringEnds, 4}} {
		size := int(uint32At(data, len(magic)+4*i)) * table.width
		if size > len(rest) {
			return nil, errCorrupt
		}
		*table.at, rest = rest[:size], rest[size:]
	}
	texts := 0
	if n := len(t.atomEnds); n > 0 {
		texts = int(uint32At(t.atomEnds, n-4))
	}
	if texts > len(rest) {
		return nil, errCorrupt
	}
	t.atomTexts, t.stringTexts = rest[:texts], rest[texts:]
	return t, nil
}

// Kinds returns all kinds, sorted.
func (t *Types) Kinds() []Kind {
	kinds := make([]Kind, len(t.kinds)/8)
	for i := range kinds {
		kinds[i] = t.kindAt(i)
	}
	return kinds
}

func (t *Types) kindAt(i int) Kind {
	return Kind{
		Group:   t.string(uint16At(t.kinds, 8*i)),
		Version: t.string(uint16At(t.kinds, 8*i+2)),
		Kind:    t.string(uint16At(t.kinds, 8*i+4)),
	}
}

// Parseable returns the type of a kind, with a schema of all types that it refers to, or false if there is no such
// kind. All calls for one kind return the same schema, as merging requires.
func (t *Types) Parseable(kind Kind) (typed.ParseableType, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.parsers[kind]; ok {
		return p, true
	}
	i, found := sort.Find(len(t.kinds)/8, func(i int) int { return kind.compare(t.kindAt(i)) })
	if !found {
		return typed.ParseableType{}, false
	}
	root := uint16At(t.kinds, 8*i+6)
	r := reached{types: t, seen: map[int]bool{}}
	r.visit(root)
	slices.SortFunc(r.defs, func(a, b schema.TypeDef) int { return cmp.Compare(a.Name, b.Name) })
	name := t.typeName(root)
	p := typed.ParseableType{
		TypeRef: schema.TypeRef{NamedType: &name},
		Schema:  &schema.Schema{Types: r.defs},
	}
	// The strings of this key are part of the data. Those of kind may keep a buffer of the request in memory.
	t.parsers[t.kindAt(i)] = p
	return p, true
}

// reached collects the types that a type refers to, directly or indirectly.
type reached struct {
	types *Types
	seen  map[int]bool
	defs  []schema.TypeDef
}

func (r *reached) visit(number int) {
	if r.seen[number] {
		return
	}
	r.seen[number] = true
	atom := r.types.atomLocked(uint16At(r.types.types, 4*number+2))
	r.defs = append(r.defs, schema.TypeDef{Name: r.types.typeName(number), Atom: atom})
	r.visitAtom(atom)
}

func (r *reached) visitAtom(a schema.Atom) {
	if a.List != nil {
		r.visitRef(a.List.ElementType)
	}
	if a.Map != nil {
		r.visitRef(a.Map.ElementType)
		for i := range a.Map.Fields {
			r.visitRef(a.Map.Fields[i].Type)
		}
	}
}

func (r *reached) visitRef(ref schema.TypeRef) {
	if ref.NamedType == nil {
		r.visitAtom(ref.Inlined)
		return
	}
	t := r.types
	number, found := sort.Find(len(t.types)/4, func(i int) int { return cmp.Compare(*ref.NamedType, t.typeName(i)) })
	if found {
		r.visit(number)
	}
}

func (t *Types) typeName(number int) string { return t.string(uint16At(t.types, 4*number)) }

func (t *Types) string(number int) string { return textAt(t.stringTexts, t.stringEnds, number) }

func (t *Types) atomText(number int) string { return textAt(t.atomTexts, t.atomEnds, number) }

// atomLocked returns an atom, which it decodes at the first call. The caller holds mu.
func (t *Types) atomLocked(number int) schema.Atom {
	if a, ok := t.atoms[number]; ok {
		return a
	}
	d := decoder{types: t, text: t.atomText(number)}
	a := d.atom()
	t.atoms[number] = a
	return a
}

// decoder decodes one atom. It panics if the data is corrupt, because the data is part of the program and is checked by
// its tests.
type decoder struct {
	types *Types
	text  string
}

func (d *decoder) byte() byte {
	b := d.text[0]
	d.text = d.text[1:]
	return b
}

func (d *decoder) uvarint() int {
	v, shift := 0, 0
	for {
		b := d.byte()
		v |= int(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
		shift += 7
	}
}

func (d *decoder) atom() (a schema.Atom) {
	flags := d.byte()
	if n := flags & scalarMask; n != 0 {
		a.Scalar = &scalars[n]
	}
	if flags&hasList != 0 {
		a.List = d.list()
	}
	if flags&hasMap != 0 {
		a.Map = d.mapType()
	}
	return a
}

func (d *decoder) list() *schema.List {
	l := &schema.List{ElementRelationship: relationships[d.byte()]}
	if n := d.uvarint(); n > 0 {
		l.Keys = make([]string, n)
		for i := range l.Keys {
			l.Keys[i] = d.types.string(d.uvarint())
		}
	}
	l.ElementType = d.typeRef()
	return l
}

func (d *decoder) mapType() *schema.Map {
	m := &schema.Map{ElementRelationship: relationships[d.byte()]}
	m.ElementType = d.typeRef()
	n := d.uvarint()
	if n == 0 {
		return m
	}
	m.Fields = make([]schema.StructField, n)
	for i := range m.Fields {
		f := &m.Fields[i]
		f.Name = d.types.string(d.uvarint())
		f.Type = d.typeRef()
		if text := d.types.string(d.uvarint()); text != "" {
			if err := json.Unmarshal([]byte(text), &f.Default); err != nil {
				panic(errCorrupt)
			}
		}
	}
	return m
}

func (d *decoder) typeRef() (r schema.TypeRef) {
	flags := d.byte()
	if flags&overrides != 0 {
		r.ElementRelationship = &relationships[d.byte()]
	}
	r.Nullable = flags&isNullable != 0
	if flags&isNamed != 0 {
		name := d.types.typeName(d.uvarint())
		r.NamedType = &name
	}
	if flags&isInlined != 0 {
		r.Inlined = d.types.atomLocked(d.uvarint())
	}
	return r
}

// textAt returns the text with a number. It begins at the end of the text before it, and ends at its own offset in
// ends.
func textAt(texts, ends string, number int) string {
	start := 0
	if number > 0 {
		start = int(uint32At(ends, 4*(number-1)))
	}
	return texts[start:uint32At(ends, 4*number)]
}

func uint16At(s string, i int) int { return int(s[i]) | int(s[i+1])<<8 }

func uint32At(s string, i int) uint32 {
	return uint32(s[i]) | uint32(s[i+1])<<8 | uint32(s[i+2])<<16 | uint32(s[i+3])<<24
}
