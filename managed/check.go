package managed

import "reflect"

// What a plan cannot tell beforehand about the objects of its type is looked for in each object: values that
// the general algorithm refuses (an item of a list without a key), or that it rewrites wherever they stand
// (JSON in a field of a type of its own). Most types have neither, so that check looks at little.

// mark finds the plans of which values may be odd.
func (p *planner) mark() {
	for _, one := range p.made {
		one.lacksKeys = one.mode == keyedMode && one.mayLackKeys()
	}
	for found := true; found; {
		found = false
		for _, one := range p.made {
			if !one.odd && one.mayBeOdd() {
				one.odd, found = true, true
			}
		}
	}
}

func (p *plan) mayBeOdd() bool {
	switch p.mode {
	case leafMode:
		return oddLeaf(p.typ, p.shape, map[*goType]bool{})
	case treeMode, failMode:
		return true
	case structMode:
		odd := false
		for i := range p.fields {
			f := &p.fields[i]
			f.odd = f.plan == nil || f.plan.odd || f.mayShowEmpty()
			odd = odd || f.odd
		}
		return odd
	}
	return p.lacksKeys || p.element != nil && p.element.odd
}

// mayShowEmpty says whether JSON may show an empty list in the field whose items are merged.
func (f *planField) mayShowEmpty() bool {
	return (f.plan.mode == keyedMode || f.plan.mode == setMode) && !f.entry.CanOmit(reflect.MakeSlice(f.typ.typ, 0, 0))
}

// mayLackKeys says whether an item of a list may show none of its key fields.
func (p *plan) mayLackKeys() bool {
	for i := range p.keys {
		k := &p.keys[i]
		if k.fallback != nil && k.fallback.hasFallback {
			return false
		}
		if k.field != nil && k.field.typ.form != pointerForm && !k.field.entry.CanOmit(reflect.Zero(k.field.typ.typ)) {
			return false
		}
	}
	return true
}

// oddLeaf says of a value that is owned as one whether the general algorithm may refuse or rewrite it.
func oddLeaf(g *goType, s *shape, seen map[*goType]bool) bool {
	switch g.form {
	case customForm, unknownForm:
		return true
	case pointerForm:
		return oddLeaf(g.element, s, seen)
	case structForm, mapForm, sliceForm:
	default:
		return !fitsLeaf(g, s)
	}
	if seen[g] {
		return false
	}
	seen[g] = true
	switch {
	case g.form == sliceForm:
		return !s.isList || s.associative || oddLeaf(g.element, s.item, seen)
	case g.form == mapForm:
		return !s.isMap || s.element == nil || oddLeaf(g.element, s.element, seen)
	}
	for i := range g.fields {
		below := s.field(g.fields[i].name)
		if below == nil || oddLeaf(g.fields[i].typ, below, seen) {
			return true
		}
	}
	return false
}

// check fails the merge if a value of the live object is one that the general algorithm refuses or rewrites.
func (m *merge) check(p *plan, v reflect.Value) {
	if m.failed || !p.odd || isNil(v) {
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
		if p.lacksKeys {
			m.keysOf(p, v, v.Len())
		}
		for i := range v.Len() {
			m.check(p.element, v.Index(i))
		}
	case leafMode:
		empty := (p.typ.form == mapForm || p.typ.form == sliceForm) && v.Len() == 0
		m.failed = !empty
	default:
		m.failed = true
	}
}

func (m *merge) checkFields(p *plan, v reflect.Value) {
	for i := range p.fields {
		f := &p.fields[i]
		if !f.odd {
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
