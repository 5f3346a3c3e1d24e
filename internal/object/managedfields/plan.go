package managedfields

// A plan describes how to compare and merge values of a Go type by a shape.
type plan struct {
	mode    planMode
	typ     *goType
	shape   *shape
	fields  []planField
	element *plan
	keys    []planKey
	// needsCheck means that check has to examine values, mayOmitKeys that items of a list may have no key.
	needsCheck, mayOmitKeys bool
}

type planField struct {
	*goField
	// plan is nil if the schema does not have the field.
	plan *plan
	// skip means that comparisons skip the field.
	skip bool
	// needsCheck means that check has to examine the field.
	needsCheck bool
}

type planKey struct {
	name     string
	field    *goField
	fallback *shapeField
}

type planMode uint8

const (
	// leafMode takes values as a whole.
	leafMode planMode = iota
	structMode
	mapMode
	keyedMode
	setMode
	// treeMode compares and merges the tree of a value, because its type has its own conversion.
	treeMode
	// failMode leaves values to the general algorithm.
	failMode
)

type planner struct {
	made map[planPair]*plan
}

type planPair struct {
	typ   *goType
	shape *shape
}

func (p *planner) planOf(g *goType, s *shape) *plan {
	if known := p.made[planPair{g, s}]; known != nil {
		return known
	}
	out := &plan{typ: g, shape: s, mode: failMode}
	p.made[planPair{g, s}] = out
	inner := g
	if g.kind == pointerKind {
		inner = g.element
	}
	switch {
	case inner.kind == unknownKind:
	case inner.kind == customKind:
		if s.leaf() {
			out.mode = leafMode
		} else {
			out.mode = treeMode
		}
	case isScalar(inner):
		if fitsLeaf(inner, s) {
			out.mode = leafMode
		}
	case s.leaf() && (s.plain() || s.scalar == untyped):
		if fitsLeaf(inner, s) {
			out.mode = leafMode
		}
	case !s.plain():
	case s.isMap && inner.kind == structKind:
		out.mode = structMode
		for i := range inner.fields {
			f := planField{goField: &inner.fields[i]}
			if below := s.field(f.name); below != nil {
				f.plan = p.planOf(f.typ, below)
			}
			out.fields = append(out.fields, f)
		}
	case s.isMap && g.kind == mapKind && s.element != nil:
		out.mode = mapMode
		out.element = p.planOf(g.element, s.element)
	case s.isList && g.kind == sliceKind && len(s.keys) == 0:
		if isKeyType(g.element) {
			out.mode = setMode
			out.element = p.planOf(g.element, s.item)
		}
	case s.isList && g.kind == sliceKind:
		p.keyed(out)
	}
	return out
}

// isScalar reports whether values of a type are never maps or lists.
func isScalar(g *goType) bool {
	switch g.kind {
	case boolKind, intKind, uintKind, floatKind, stringKind, bytesKind,
		timeKind, microTimeKind, quantityKind, intOrStringKind:
		return true
	}
	return false
}

// fitsLeaf reports whether values of a type have the kind of value that a shape requires.
func fitsLeaf(g *goType, s *shape) bool {
	switch g.kind {
	case structKind, mapKind:
		return s.isMap
	case sliceKind:
		return s.isList
	case boolKind:
		return s.scalar == boolean || s.scalar == untyped
	case intKind, uintKind, floatKind:
		return s.scalar == numeric || s.scalar == untyped
	case stringKind, bytesKind, timeKind, microTimeKind, quantityKind:
		return s.scalar == text || s.scalar == untyped
	case intOrStringKind:
		return s.scalar == untyped
	}
	return false
}

func isKeyType(g *goType) bool {
	return g.kind == stringKind || g.kind == intKind || g.kind == boolKind
}

func (p *planner) keyed(out *plan) {
	inner := out.typ.element
	if inner.kind != structKind || !out.shape.item.isMap {
		return
	}
	for _, name := range out.shape.keys {
		k := planKey{name: name, fallback: out.shape.item.fields[name]}
		for i := range inner.fields {
			if f := &inner.fields[i]; f.name == name {
				k.field = f
				g := f.typ
				if g.kind == pointerKind {
					g = g.element
				}
				if !isKeyType(g) {
					return
				}
			}
		}
		out.keys = append(out.keys, k)
	}
	out.mode = keyedMode
	out.element = p.planOf(inner, out.shape.item)
}
