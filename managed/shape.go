package managed

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// A shape is a type of a merge schema, resolved.
type shape struct {
	// A type may allow several of these: a value that can be anything does.
	scalar scalarKind
	isMap  bool
	isList bool

	// fields are a map's named fields; element is the type of the others, nil if
	// there may be none.
	fields  map[string]*shapeField
	element *shape
	// item is the type of a list's items, keys their key fields in order; a list
	// that has none but is associative is a set.
	item        *shape
	associative bool
	keys        []string
	// mapAtomic and listAtomic are owned as one.
	mapAtomic, listAtomic bool
	// deduced is a map of anything: the schema says nothing of what is atomic in it.
	deduced bool
}

type shapeField struct {
	shape *shape
	// fallback is the value of a key field that is absent; hasFallback says that
	// there is one.
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

// plain says that the type allows one kind of value alone.
func (s *shape) plain() bool {
	n := 0
	for _, is := range []bool{s.scalar != noScalar, s.isMap, s.isList} {
		if is {
			n++
		}
	}
	return n == 1
}

// leaf says that whatever the value is, it is owned as one.
func (s *shape) leaf() bool {
	return (!s.isMap || s.mapAtomic) && (!s.isList || s.listAtomic)
}

// field returns the type of a map's field.
func (s *shape) field(name string) *shape {
	if f := s.fields[name]; f != nil {
		return f.shape
	}
	return s.element
}

// shapes resolves the types of one schema.
type shapes struct {
	schema *schema.Schema
	named  map[shapeName]*shape
	// bad is set when a type is missing or says what the general algorithm has to
	// judge.
	bad bool
}

type shapeName struct {
	name         string
	relationship schema.ElementRelationship
}

// shapeOf resolves a type and all that it reaches; nil if the general algorithm has
// to serve it.
func shapeOf(s *schema.Schema, ref schema.TypeRef) *shape {
	r := &shapes{schema: s, named: map[shapeName]*shape{}}
	out := r.resolve(ref)
	if r.bad {
		return nil
	}
	return out
}

func (r *shapes) resolve(ref schema.TypeRef) *shape {
	out := &shape{}
	if ref.NamedType != nil {
		name := shapeName{name: *ref.NamedType}
		if ref.ElementRelationship != nil {
			name.relationship = *ref.ElementRelationship
		}
		if known := r.named[name]; known != nil {
			return known
		}
		r.named[name] = out
	}
	atom, ok := r.schema.Resolve(ref)
	if !ok {
		r.bad = true
		return out
	}
	r.fill(out, atom)
	return out
}

func (r *shapes) fill(out *shape, atom schema.Atom) {
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
			r.bad = true
		}
	}
	if l := atom.List; l != nil {
		out.isList = true
		out.listAtomic = l.ElementRelationship == schema.Atomic
		out.associative = l.ElementRelationship == schema.Associative
		out.keys = slices.Sorted(slices.Values(l.Keys))
		out.item = r.resolve(l.ElementType)
		if !out.listAtomic && !out.associative {
			r.bad = true
		}
	}
	if m := atom.Map; m != nil {
		out.isMap = true
		out.mapAtomic = m.ElementRelationship == schema.Atomic
		out.fields = make(map[string]*shapeField, len(m.Fields))
		for i := range m.Fields {
			f := &shapeField{shape: r.resolve(m.Fields[i].Type)}
			f.fallback, f.hasFallback = partOf(m.Fields[i].Default)
			f.fallback.name = m.Fields[i].Name
			out.fields[m.Fields[i].Name] = f
		}
		if m.ElementType != (schema.TypeRef{}) {
			out.element = r.resolve(m.ElementType)
		}
		out.deduced = m.Fields == nil && deduced(m.ElementType)
	}
	if atom.Scalar == nil && atom.List == nil && atom.Map == nil {
		r.bad = true
	}
}

// partOf makes a part of a scalar in a tree.
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

// fits says whether a set written under an older schema means the same under this
// one: no path of it goes into what is atomic now.
func (s *shape) fits(of *set, alone bool) bool {
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
			if below != nil && !below.fits(it.sub, it.member && it.sub == nil) {
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
			if !s.item.fits(it.sub, it.member && it.sub == nil) {
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
