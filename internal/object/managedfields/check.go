package managedfields

import (
	"reflect"
	"slices"
)

// mark finds out which plans need a check of their values. The general algorithm refuses some objects (for example if
// an item of a list has no key). It also rewrites some values in any part of the object (such as JSON in a
// RawExtension). So an apply has to find such values outside of the configuration, too. Plans know where they can be.
// Most types have none, so check looks at few values.
func (p *planner) mark() {
	for _, one := range p.made {
		one.mayOmitKeys = one.mode == keyedMode && one.canOmitKeys()
	}
	for found := true; found; {
		found = false
		for _, one := range p.made {
			if !one.needsCheck && one.findNeedsCheck() {
				one.needsCheck, found = true, true
			}
		}
	}
	for _, one := range p.made { // only now are the plans of all fields known
		for i := range one.fields {
			one.fields[i].needsCheck = one.fields[i].findNeedsCheck()
		}
	}
}

// findNeedsCheck reports whether values of a plan may need a check. It uses the marks that other plans have so
// far.
func (p *plan) findNeedsCheck() bool {
	switch p.mode {
	case leafMode:
		return leafNeedsCheck(p.typ, p.shape, map[*goType]bool{})
	case treeMode, failMode:
		return true
	case structMode:
		return slices.ContainsFunc(p.fields, func(f planField) bool { return f.findNeedsCheck() })
	}
	return p.mayOmitKeys || p.element != nil && p.element.needsCheck
}

// findNeedsCheck reports whether values of a field may need a check. It uses the mark that the field's plan has so
// far.
func (f *planField) findNeedsCheck() bool {
	return f.plan == nil || f.plan.needsCheck || f.mayShowEmpty()
}

// mayShowEmpty reports whether JSON may contain an empty list for a field whose items are merged one by one.
func (f *planField) mayShowEmpty() bool {
	return (f.plan.mode == keyedMode || f.plan.mode == setMode) && !f.entry.CanOmit(reflect.MakeSlice(f.typ.typ, 0, 0))
}

// holdsOmittedKeys reports whether a value of the plan may contain a list item without keys. seen has the plans above.
func (p *plan) holdsOmittedKeys(seen map[*plan]bool) bool {
	if seen[p] {
		return false
	}
	seen[p] = true
	if p.mayOmitKeys || p.element != nil && p.element.holdsOmittedKeys(seen) {
		return true
	}
	for i := range p.fields {
		if below := p.fields[i].plan; below != nil && below.holdsOmittedKeys(seen) {
			return true
		}
	}
	return false
}

// canOmitKeys reports whether the JSON of a list item may contain none of its key fields.
func (p *plan) canOmitKeys() bool {
	for i := range p.keys {
		k := &p.keys[i]
		if k.fallback != nil && k.fallback.hasFallback {
			return false
		}
		if k.field != nil && k.field.typ.kind != pointerKind && !k.field.entry.CanOmit(reflect.Zero(k.field.typ.typ)) {
			return false
		}
	}
	return true
}

// leafNeedsCheck reports whether the general algorithm may refuse or change values of an atomic type.
func leafNeedsCheck(g *goType, s *shape, seen map[*goType]bool) bool {
	switch g.kind {
	case customKind, unknownKind:
		return true
	case pointerKind:
		return leafNeedsCheck(g.element, s, seen)
	case structKind, mapKind, sliceKind:
	default:
		return !fitsLeaf(g, s)
	}
	if seen[g] {
		return false
	}
	seen[g] = true
	switch {
	case g.kind == sliceKind:
		return !s.isList || s.associative || leafNeedsCheck(g.element, s.item, seen)
	case g.kind == mapKind:
		return !s.isMap || s.element == nil || leafNeedsCheck(g.element, s.element, seen)
	}
	for i := range g.fields {
		below := s.field(g.fields[i].name)
		if below == nil || leafNeedsCheck(g.fields[i].typ, below, seen) {
			return true
		}
	}
	return false
}

// check makes the merge fail if v holds a value that the general algorithm refuses or rewrites.
func (m *merge) check(p *plan, v reflect.Value) {
	if m.failed || !p.needsCheck || isNil(v) {
		return
	}
	switch p.mode {
	case structMode:
		m.checkFields(p, deref(v))
	case mapMode:
		for entries := v.MapRange(); entries.Next(); {
			m.check(p.element, entries.Value())
		}
	case keyedMode:
		if p.mayOmitKeys {
			m.keysOf(p, v, v.Len())
		}
		for i := range v.Len() {
			m.check(p.element, v.Index(i))
		}
	case leafMode:
		m.failed = leafHoldsSpecial(p.typ, p.shape, v)
	default:
		m.failed = true
	}
}

func (m *merge) checkFields(p *plan, v reflect.Value) {
	for i := range p.fields {
		f := &p.fields[i]
		if !f.needsCheck {
			continue
		}
		inner, has := f.of(v)
		switch {
		case !has:
		case f.plan == nil:
			m.failed = true
		default:
			m.check(f.plan, inner)
			if inner.Kind() == reflect.Slice && !inner.IsNil() && inner.Len() == 0 {
				m.emptyList = true
			}
		}
	}
}

// leafHoldsSpecial reports whether v, a value that is owned as one, contains a value that the general algorithm
// may refuse or change. leafNeedsCheck only says whether the type allows such values: the type of the status of a
// Pod does, but most Pods have none.
func leafHoldsSpecial(g *goType, s *shape, v reflect.Value) bool {
	if isNil(v) {
		return false
	}
	switch g.kind {
	case pointerKind:
		return leafHoldsSpecial(g.element, s, v.Elem())
	case sliceKind:
		if v.Len() == 0 {
			return false
		}
		if !s.isList || s.associative && !isSetOfStrings(g, s, v) {
			return true
		}
		for i := range v.Len() {
			if leafHoldsSpecial(g.element, s.item, v.Index(i)) {
				return true
			}
		}
	case mapKind:
		if v.Len() == 0 {
			return false
		}
		if !s.isMap || s.element == nil {
			return true
		}
		for entries := v.MapRange(); entries.Next(); {
			if leafHoldsSpecial(g.element, s.element, entries.Value()) {
				return true
			}
		}
	case structKind:
		for i := range g.fields {
			f := &g.fields[i]
			inner, has := f.of(v)
			if !has {
				continue
			}
			if below := s.field(f.name); below == nil || leafHoldsSpecial(f.typ, below, inner) {
				return true
			}
		}
	default:
		return leafNeedsCheck(g, s, nil)
	}
	return false
}

// isSetOfStrings reports whether v is a list of different strings that the schema calls a set. It returns false for more than
// a few strings, such as verbs, because it compares each with each.
func isSetOfStrings(g *goType, s *shape, v reflect.Value) bool {
	const few = 64
	if len(s.keys) > 0 || g.element.kind != stringKind || v.Len() > few {
		return false
	}
	for i := range v.Len() {
		for j := range i {
			if v.Index(i).String() == v.Index(j).String() {
				return false
			}
		}
	}
	return true
}
