package managedfields

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// A shape is a type of a merge schema whose references to other types are resolved.
type shape struct {
	// A type may allow several of these. A type that allows all of them allows any value.
	scalar scalarKind
	isMap  bool
	isList bool

	// fields are the named fields of a map. element is the type of all other members, nil if there may be none.
	fields  map[string]*shapeField
	element *shape
	// item is the type of the items of a list, keys are their key fields in order. An associative list without
	// keys is a set.
	item        *shape
	associative bool
	keys        []string
	// mapAtomic and listAtomic mean that a map or list is atomic.
	mapAtomic, listAtomic bool
	// deduced means that a map may contain anything. The schema does not define which parts are atomic.
	deduced bool
}

type shapeField struct {
	shape *shape
	// fallback is the default of a key field; it is only valid if hasFallback is set.
	fallback    part
	hasFallback bool
}

type scalarKind uint8

const (
	noScalar scalarKind = iota
	numeric
	text
	boolean
	untyped
)

// plain reports whether the type allows one kind of value only.
func (s *shape) plain() bool {
	n := 0
	for _, is := range []bool{s.scalar != noScalar, s.isMap, s.isList} {
		if is {
			n++
		}
	}
	return n == 1
}

// leaf reports whether every value of the type is atomic.
func (s *shape) leaf() bool {
	return (!s.isMap || s.mapAtomic) && (!s.isList || s.listAtomic)
}

// itemStep returns the kind of the steps to the items of an associative list.
func (s *shape) itemStep() stepKind {
	if len(s.keys) == 0 {
		return valueStep
	}
	return keyStep
}

// field returns the type of a member of a map, nil if there may be none of the name.
func (s *shape) field(name string) *shape {
	if f := s.fields[name]; f != nil {
		return f.shape
	}
	return s.element
}

// shapes makes the shapes of one schema.
type shapes struct {
	schema *schema.Schema
	named  map[shapeName]*shape
	// bad is set if a type is missing, or is one that only the general algorithm understands.
	bad bool
}

type shapeName struct {
	name         string
	relationship schema.ElementRelationship
}

// shapeOf returns the shape of a type, nil if only the general algorithm understands the schema.
func shapeOf(s *schema.Schema, ref schema.TypeRef) *shape {
	r := &shapes{schema: s, named: map[shapeName]*shape{}}
	out := r.resolve(ref)
	if r.bad {
		return nil
	}
	return out
}

func (s *shapes) resolve(ref schema.TypeRef) *shape {
	out := &shape{}
	if ref.NamedType != nil {
		name := shapeName{name: *ref.NamedType}
		if ref.ElementRelationship != nil {
			name.relationship = *ref.ElementRelationship
		}
		if known := s.named[name]; known != nil {
			return known
		}
		s.named[name] = out
	}
	atom, ok := s.schema.Resolve(ref)
	if !ok {
		s.bad = true
		return out
	}
	s.fill(out, atom)
	return out
}

func (s *shapes) fill(out *shape, atom schema.Atom) {
	if atom.Scalar != nil {
		switch *atom.Scalar {
		case schema.Numeric:
			out.scalar = numeric
		case schema.String:
			out.scalar = text
		case schema.Boolean:
			out.scalar = boolean
		case schema.Untyped:
			out.scalar = untyped
		default:
			s.bad = true
		}
	}
	if l := atom.List; l != nil {
		out.isList = true
		out.listAtomic = l.ElementRelationship == schema.Atomic
		out.associative = l.ElementRelationship == schema.Associative
		out.keys = slices.Sorted(slices.Values(l.Keys))
		out.item = s.resolve(l.ElementType)
		if !out.listAtomic && !out.associative {
			s.bad = true
		}
	}
	if m := atom.Map; m != nil {
		out.isMap = true
		out.mapAtomic = m.ElementRelationship == schema.Atomic
		out.fields = make(map[string]*shapeField, len(m.Fields))
		for i := range m.Fields {
			f := &shapeField{shape: s.resolve(m.Fields[i].Type)}
			f.fallback, f.hasFallback = partOf(m.Fields[i].Default)
			f.fallback.name = m.Fields[i].Name
			out.fields[m.Fields[i].Name] = f
		}
		if m.ElementType != (schema.TypeRef{}) {
			out.element = s.resolve(m.ElementType)
		}
		out.deduced = m.Fields == nil && deduced(m.ElementType)
	}
	if atom.Scalar == nil && atom.List == nil && atom.Map == nil {
		s.bad = true
	}
}

// partOf converts a scalar of a tree to a part.
func partOf(v any) (part, bool) {
	switch v := v.(type) {
	case string:
		return part{kind: textPart, text: v}, true
	case bool:
		p := part{kind: boolPart}
		if v {
			p.num = 1
		}
		return p, true
	case int64:
		return part{kind: numPart, num: v}, true
	case int:
		return part{kind: numPart, num: int64(v)}, true
	case int32:
		return part{kind: numPart, num: int64(v)}, true
	case float64:
		if n := int64(v); float64(n) == v && n > -1<<53 && n < 1<<53 {
			return part{kind: numPart, num: n}, true
		}
	}
	return part{}, false
}

// fitsSchema reports whether a field set that may have been written under an older schema has the same meaning under
// this one: no path of it ends below a value that is atomic now. alone means that the set is empty and its root a
// member.
func (s *shape) fitsSchema(of *set, alone bool) bool {
	switch {
	case s.isMap:
		if s.deduced {
			return true
		}
		if !alone && s.mapAtomic {
			return of.empty()
		}
		for i := range itemsOf(of) {
			it := &of.items[i]
			below := s.element
			if it.step.kind == fieldStep {
				below = s.field(it.step.name)
			}
			if below != nil && !below.fitsSchema(it.sub, it.member && it.sub == nil) {
				return false
			}
		}
	case s.scalar != noScalar:
	case s.isList:
		if !alone && s.listAtomic {
			return false
		}
		for i := range itemsOf(of) {
			it := &of.items[i]
			if !s.item.fitsSchema(it.sub, it.member && it.sub == nil) {
				return false
			}
		}
	}
	return true
}

func itemsOf(s *set) []item {
	if s == nil {
		return nil
	}
	return s.items
}

func deduced(ref schema.TypeRef) bool {
	if ref.NamedType != nil {
		return *ref.NamedType == "__untyped_deduced_"
	}
	return ref.Inlined.Scalar != nil && *ref.Inlined.Scalar == schema.Untyped
}
