package binaryformat

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Encode returns the data that Open reads, with the types of a schema and the type name of each kind. Equal atoms are
// stored once. It fails for a schema with unions, and if a table has too many entries for a uint16.
func Encode(s *schema.Schema, kinds map[Kind]string) ([]byte, error) {
	e := encoder{strings: map[string]int{}, atoms: map[string]int{}}
	types := map[string]schema.Atom{}
	for _, t := range s.Types {
		types[t.Name] = t.Atom
	}
	e.string("") // gets the number 0

	// Encoding types and kinds adds atoms and strings, so the tables of atoms and strings are complete only afterwards.
	var typeTable, kindTable []byte
	names := slices.Sorted(maps.Keys(types))
	typeNumbers := make(map[string]int, len(names))
	for i, name := range names {
		typeNumbers[name] = i
	}
	e.types = typeNumbers
	for _, name := range names {
		atom, err := e.atom(types[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		typeTable = binary.LittleEndian.AppendUint16(typeTable, uint16(e.string(name)))
		typeTable = binary.LittleEndian.AppendUint16(typeTable, uint16(atom))
	}
	sorted := slices.SortedFunc(maps.Keys(kinds), Kind.compare)
	for _, k := range sorted {
		number, ok := typeNumbers[kinds[k]]
		if !ok {
			return nil, fmt.Errorf("%v: no type %q", k, kinds[k])
		}
		for _, n := range []int{e.string(k.Group), e.string(k.Version), e.string(k.Kind), number} {
			kindTable = binary.LittleEndian.AppendUint16(kindTable, uint16(n))
		}
	}
	if max(len(e.stringTexts), len(e.atomTexts), len(names), len(sorted)) > math.MaxUint16 {
		return nil, errors.New("too many strings, atoms, types or kinds")
	}

	data := []byte(magic)
	for _, n := range []int{len(sorted), len(names), len(e.atomTexts), len(e.stringTexts)} {
		data = binary.LittleEndian.AppendUint32(data, uint32(n))
	}
	data = append(data, kindTable...)
	data = append(data, typeTable...)
	for _, texts := range [][]string{e.atomTexts, e.stringTexts} {
		end := 0
		for _, t := range texts {
			end += len(t)
			data = binary.LittleEndian.AppendUint32(data, uint32(end))
		}
	}
	for _, texts := range [][]string{e.atomTexts, e.stringTexts} {
		for _, t := range texts {
			data = append(data, t...)
		}
	}
	return data, nil
}

// encoder contains the tables that are being built.
type encoder struct {
	types       map[string]int // numbers by name
	strings     map[string]int // numbers by text
	stringTexts []string
	atoms       map[string]int // numbers by encoded atom
	atomTexts   []string
}

// string returns the number of a string, which it adds to the table if it is new.
func (e *encoder) string(s string) int {
	n, ok := e.strings[s]
	if !ok {
		n = len(e.stringTexts)
		e.strings[s] = n
		e.stringTexts = append(e.stringTexts, s)
	}
	return n
}

// atom returns the number of an atom, which it adds to the table if it is new.
func (e *encoder) atom(a schema.Atom) (int, error) {
	var flags byte
	if a.Scalar != nil {
		i := slices.Index(scalars[:], *a.Scalar)
		if i < 0 {
			return 0, fmt.Errorf("unknown scalar %q", *a.Scalar)
		}
		flags = byte(i)
	}
	if a.List != nil {
		flags |= hasList
	}
	if a.Map != nil {
		flags |= hasMap
	}
	b := []byte{flags}
	var err error
	if a.List != nil {
		if b, err = e.list(b, a.List); err != nil {
			return 0, err
		}
	}
	if a.Map != nil {
		if b, err = e.mapType(b, a.Map); err != nil {
			return 0, err
		}
	}
	n, ok := e.atoms[string(b)]
	if !ok {
		n = len(e.atomTexts)
		e.atoms[string(b)] = n
		e.atomTexts = append(e.atomTexts, string(b))
	}
	return n, nil
}

func (e *encoder) list(b []byte, l *schema.List) ([]byte, error) {
	b, err := e.relationship(b, l.ElementRelationship)
	if err != nil {
		return nil, err
	}
	b = binary.AppendUvarint(b, uint64(len(l.Keys)))
	for _, k := range l.Keys {
		b = binary.AppendUvarint(b, uint64(e.string(k)))
	}
	return e.typeRef(b, l.ElementType)
}

func (e *encoder) mapType(b []byte, m *schema.Map) ([]byte, error) {
	if len(m.Unions) > 0 {
		return nil, errors.New("unions are not supported")
	}
	b, err := e.relationship(b, m.ElementRelationship)
	if err != nil {
		return nil, err
	}
	if b, err = e.typeRef(b, m.ElementType); err != nil {
		return nil, err
	}
	fields := slices.SortedFunc(
		slices.Values(m.Fields), func(a, b schema.StructField) int { return cmp.Compare(a.Name, b.Name) },
	)
	b = binary.AppendUvarint(b, uint64(len(fields)))
	for _, f := range fields {
		b = binary.AppendUvarint(b, uint64(e.string(f.Name)))
		if b, err = e.typeRef(b, f.Type); err != nil {
			return nil, err
		}
		text := "" // no default
		if f.Default != nil {
			j, err := json.Marshal(f.Default)
			if err != nil {
				return nil, err
			}
			text = string(j)
		}
		b = binary.AppendUvarint(b, uint64(e.string(text)))
	}
	return b, nil
}

func (e *encoder) relationship(b []byte, r schema.ElementRelationship) ([]byte, error) {
	i := slices.Index(relationships[:], r)
	if i < 0 {
		return nil, fmt.Errorf("unknown element relationship %q", r)
	}
	return append(b, byte(i)), nil
}

func (e *encoder) typeRef(b []byte, r schema.TypeRef) ([]byte, error) {
	var flags byte
	inlined := r.Inlined != (schema.Atom{})
	if r.NamedType != nil {
		flags |= isNamed
	}
	if inlined {
		flags |= isInlined
	}
	if r.ElementRelationship != nil {
		flags |= overrides
	}
	if r.Nullable {
		flags |= isNullable
	}
	b = append(b, flags)
	var err error
	if r.ElementRelationship != nil {
		if b, err = e.relationship(b, *r.ElementRelationship); err != nil {
			return nil, err
		}
	}
	if r.NamedType != nil {
		n, ok := e.types[*r.NamedType]
		if !ok {
			return nil, fmt.Errorf("no type %q", *r.NamedType)
		}
		b = binary.AppendUvarint(b, uint64(n))
	}
	if inlined {
		n, err := e.atom(r.Inlined)
		if err != nil {
			return nil, err
		}
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b, nil
}
