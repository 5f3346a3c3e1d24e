package managed

import (
	"reflect"
	"slices"
	"strings"
)

// A manager that applies without a field that it applied before gives the field up. It is removed from the
// object if nobody else owns it.
//
// The general algorithm removes all of the last fields and adds back what others own, and what was not the
// manager's. Of fields as the applies of clients leave them this comes down to a walk along the last fields:
// one that somebody owns is kept, and the walk goes on below it; any other is removed with all below it.
// A map or list that loses all it has becomes null. The walk fails where the sets are of another kind, as
// those are that clients have written themselves.

// keeps says whether a field of the last ones is owned by anybody. A named field of a map is owned with any
// field below it.
func keeps(owned *set, s *step, named bool) (*item, bool) {
	if owned == nil {
		return nil, false
	}
	i, found := owned.find(s)
	if !found {
		return nil, false
	}
	it := &owned.items[i]
	return it, it.member || named && !it.sub.empty()
}

// drop records that a value of a tree is removed.
func (m *merge) dropTree(s *shape, old any) {
	m.trees(s, tree{old, true}, tree{})
}

// below is what is found for one of the last fields in the object.
type below struct {
	last  *item
	owned *item
	keep  bool
}

// ownedBelow returns the owned fields below the field.
func (b below) ownedBelow() *set {
	if b.owned == nil {
		return nil
	}
	return b.owned.sub
}

// look looks a last field up, and fails the merge if the field is no member itself where it has to be.
func (m *merge) look(last *item, owned *set, named bool) below {
	if !last.member && !named {
		m.failed = true
	}
	it, keep := keeps(owned, &last.step, named)
	return below{last, it, keep}
}

// prune removes from v the last fields that nobody owns. It returns true if nothing is left of v.
func (m *merge) prune(p *plan, v reflect.Value, last, owned *set) (emptied bool) {
	if m.failed || last.empty() {
		return false
	}
	switch p.mode {
	case structMode:
		return m.pruneStruct(p, deref(v), last, owned)
	case mapMode:
		return m.pruneMap(p, v, last, owned)
	case keyedMode, setMode:
		return m.pruneList(p, v, last, owned)
	}
	m.failed = true
	return false
}

func (m *merge) pruneStruct(p *plan, v reflect.Value, last, owned *set) bool {
	if isNil(v) {
		return false
	}
	shown, lost := 0, 0
	for i := range last.items {
		f := p.field(&last.items[i].step)
		if f == nil {
			continue
		}
		inner, has := f.of(v)
		if !has {
			continue
		}
		b := m.look(&last.items[i], owned, true)
		if m.failed || f.plan == nil {
			m.failed = true
			return false
		}
		m.pushField(f.name)
		switch {
		case !b.keep:
			if lost == 0 {
				shown = p.shown(v)
			}
			lost++
			m.values(f.plan, inner, reflect.Value{})
			inner.SetZero()
		case m.prune(f.plan, inner, b.last.sub, b.ownedBelow()):
			inner.SetZero()
		}
		m.pop()
	}
	if lost == 0 || lost < shown {
		return false
	}
	m.failed = m.failed || m.lost
	return true
}

// field returns the field of a struct that a step goes to, nil if there is none.
func (p *plan) field(s *step) *planField {
	if s.kind != fieldStep {
		return nil
	}
	i, found := slices.BinarySearchFunc(p.fields, s.name, func(f planField, name string) int { return strings.Compare(f.name, name) })
	if !found {
		return nil
	}
	return &p.fields[i]
}

func (m *merge) pruneMap(p *plan, v reflect.Value, last, owned *set) bool {
	lost := false
	for i := range last.items {
		s := &last.items[i].step
		if s.kind != fieldStep || v.Len() == 0 {
			continue
		}
		key := reflect.ValueOf(s.name).Convert(p.typ.typ.Key())
		old := v.MapIndex(key)
		if !old.IsValid() {
			continue
		}
		b := m.look(&last.items[i], owned, p.shape.fields[s.name] != nil)
		m.pushField(s.name)
		if !b.keep {
			m.values(p.element, old, reflect.Value{})
			v.SetMapIndex(key, reflect.Value{})
			lost = true
		} else if !b.last.sub.empty() {
			element := reflect.New(p.element.typ.typ).Elem()
			element.Set(old)
			if m.prune(p.element, element, b.last.sub, b.ownedBelow()) {
				element.SetZero()
			}
			v.SetMapIndex(key, element)
		}
		m.pop()
	}
	return lost && v.Len() == 0
}

func (m *merge) pruneList(p *plan, v reflect.Value, last, owned *set) bool {
	n := v.Len()
	if n == 0 {
		return false
	}
	var items []keyed
	if p.mode == setMode {
		items = valuesOf(v, n)
	} else {
		items = m.keysOf(p, v, n)
	}
	gone := m.pruneItems(p.shape, items, last, owned, func(at int, b below) {
		if !b.keep {
			m.values(p.element, v.Index(at), reflect.Value{})
			return
		}
		m.keepsKeys(p.shape, items, at, b.owned, func(name string) bool {
			f := p.element.field(&step{kind: fieldStep, name: name})
			if f == nil {
				return false
			}
			_, has := f.of(v.Index(at))
			return has
		})
		m.failed = m.prune(p.element, v.Index(at), b.last.sub, b.ownedBelow()) || m.failed
	})
	if len(gone) == 0 || m.failed {
		return false
	}
	out := reflect.MakeSlice(v.Type(), 0, n-len(gone))
	for i := range n {
		if !gone[i] {
			out = reflect.Append(out, v.Index(i))
		}
	}
	v.Set(out)
	return out.Len() == 0
}

// pruneItems visits the items of a list that are among the last fields, and returns those that are removed.
func (m *merge) pruneItems(s *shape, items []keyed, last, owned *set, visit func(at int, b below)) map[int]bool {
	if m.failed {
		return nil
	}
	sorted := slices.Clone(items)
	if !sortKeyed(sorted) {
		m.failed = true
		return nil
	}
	var gone map[int]bool
	for i := range last.items {
		st := &last.items[i].step
		if st.kind == fieldStep {
			continue
		}
		j, found := slices.BinarySearchFunc(sorted, keyed{parts: st.parts}, byKey)
		if !found {
			continue
		}
		at := sorted[j].at
		b := m.look(&last.items[i], owned, false)
		if m.failed {
			return nil
		}
		m.push(*st)
		visit(at, b)
		m.pop()
		if !b.keep {
			if gone == nil {
				gone = map[int]bool{}
			}
			gone[at] = true
		}
	}
	return gone
}

// keepsKeys fails the merge if an item of a list that is kept could lose its key with the fields that nobody
// owns: the general algorithm then takes it for another item. shows says whether the item has a key field.
func (m *merge) keepsKeys(s *shape, items []keyed, at int, owned *item, shows func(name string) bool) {
	if len(s.keys) == 0 {
		return
	}
	owns := false
	for _, name := range s.keys {
		if !shows(name) {
			continue
		}
		if it, member := keeps(owned.sub, &step{kind: fieldStep, name: name}, false); it != nil && member {
			owns = true
			continue
		}
		field := s.item.fields[name]
		own := slices.IndexFunc(items[at].parts, func(p part) bool { return p.name == name })
		if field == nil || !field.hasFallback || own < 0 || items[at].parts[own] != field.fallback {
			m.failed = true
		}
	}
	m.failed = m.failed || !owns
}

// pruneTree is prune for a value of a tree, of which it returns what is left: null if nothing is.
func (m *merge) pruneTree(s *shape, old any, last, owned *set) any {
	if m.failed || last.empty() {
		return old
	}
	switch old := old.(type) {
	case map[string]any:
		if s.isMap && !s.mapAtomic {
			return m.pruneTreeMap(s, old, last, owned)
		}
	case []any:
		if s.isList && !s.listAtomic {
			return m.pruneTreeList(s, old, last, owned)
		}
	case nil:
		return nil
	}
	m.failed = true
	return old
}

func (m *merge) pruneTreeMap(s *shape, old map[string]any, last, owned *set) any {
	lost := false
	for i := range last.items {
		st := &last.items[i].step
		value, has := old[st.name]
		if !has || st.kind != fieldStep {
			continue
		}
		b := m.look(&last.items[i], owned, s.fields[st.name] != nil)
		inner := s.field(st.name)
		if m.failed || inner == nil {
			m.failed = true
			return old
		}
		m.pushField(st.name)
		if !b.keep {
			m.dropTree(inner, value)
			delete(old, st.name)
			lost = true
		} else {
			old[st.name] = m.pruneTree(inner, value, b.last.sub, b.ownedBelow())
		}
		m.pop()
	}
	if lost && len(old) == 0 {
		return nil
	}
	return old
}

func (m *merge) pruneTreeList(s *shape, old []any, last, owned *set) any {
	items := m.treeKeys(s, old)
	gone := m.pruneItems(s, items, last, owned, func(at int, b below) {
		if !b.keep {
			m.dropTree(s.item, old[at])
			return
		}
		members, _ := old[at].(map[string]any)
		m.keepsKeys(s, items, at, b.owned, func(name string) bool { _, has := members[name]; return has })
		if old[at] = m.pruneTree(s.item, old[at], b.last.sub, b.ownedBelow()); old[at] == nil {
			m.failed = true
		}
	})
	if len(gone) == 0 || m.failed {
		return old
	}
	out := make([]any, 0, len(old)-len(gone))
	for i := range old {
		if !gone[i] {
			out = append(out, old[i])
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
