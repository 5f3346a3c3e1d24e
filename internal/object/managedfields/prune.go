package managedfields

import (
	"reflect"
	"slices"
	"strings"
)

// A manager that applies a configuration without a field of its last one gives up the field. The field is removed from
// the object if no other manager owns it.
//
// The general algorithm removes all last fields from the object, and then adds back the fields that are still owned and
// those that the manager did not own. For field sets that were written by applies, this is a walk along the last
// fields: an owned field is kept, and the walk continues below it; any other field is removed with all fields below it.
// A map or list that becomes empty becomes null. The merge fails for other field sets, which clients can write
// themselves, and in cases in which the general algorithm would lose an item or an empty list.

// ownedItem returns the item of a field in the owned fields, nil if there is none, and whether the field is owned. A
// named field of a map is owned together with any field below it.
func ownedItem(owned *set, s *step, named bool) (*item, bool) {
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

// A candidate is one of the last fields that the object has.
type candidate struct {
	last *item
	// owned is nil if neither the field nor any field below it is owned.
	owned *item
	keep  bool
}

// ownedBelow returns the owned fields below the candidate.
func (c candidate) ownedBelow() *set {
	if c.owned == nil {
		return nil
	}
	return c.owned.sub
}

// candidate returns the candidate for a field of the last configuration. The merge fails if last has only fields
// below this one, and not the field itself; this is only allowed for named fields.
func (m *merge) candidate(last *item, owned *set, named bool) candidate {
	if !last.member && !named {
		m.failed = true
	}
	it, keep := ownedItem(owned, &last.step, named)
	return candidate{last, it, keep}
}

// recordRemoved records that a value of a tree is removed.
func (m *merge) recordRemoved(s *shape, old any) {
	m.trees(s, tree{old, true}, tree{})
}

// prune removes the last fields that are not owned from v. It returns true if v is empty afterwards.
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
	shown, removals := 0, 0
	for i := range last.items {
		f := p.field(&last.items[i].step)
		if f == nil {
			continue
		}
		inner, has := f.of(v)
		if !has {
			continue
		}
		c := m.candidate(&last.items[i], owned, true)
		if m.failed || f.plan == nil {
			m.failed = true
			return false
		}
		m.pushField(f.name)
		switch {
		case !c.keep:
			if removals == 0 {
				shown = p.shown(v)
			}
			removals++
			m.values(f.plan, inner, reflect.Value{})
			inner.SetZero()
		case m.prune(f.plan, inner, c.last.sub, c.ownedBelow()):
			inner.SetZero()
		}
		m.pop()
	}
	if removals == 0 || removals < shown {
		return false
	}
	m.failed = m.failed || m.hidden
	return true
}

// field returns the field of a struct that a step names, nil if there is none.
func (p *plan) field(s *step) *planField {
	if s.kind != fieldStep {
		return nil
	}
	i, found := slices.BinarySearchFunc(p.fields, s.name, func(f planField, name string) int {
		return strings.Compare(f.name, name)
	})
	if !found {
		return nil
	}
	return &p.fields[i]
}

func (m *merge) pruneMap(p *plan, v reflect.Value, last, owned *set) bool {
	removes := false
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
		c := m.candidate(&last.items[i], owned, p.shape.fields[s.name] != nil)
		m.pushField(s.name)
		if !c.keep {
			m.values(p.element, old, reflect.Value{})
			v.SetMapIndex(key, reflect.Value{})
			removes = true
		} else if !c.last.sub.empty() {
			element := reflect.New(p.element.typ.typ).Elem()
			element.Set(old)
			if m.prune(p.element, element, c.last.sub, c.ownedBelow()) {
				element.SetZero()
			}
			v.SetMapIndex(key, element)
		}
		m.pop()
	}
	return removes && v.Len() == 0
}

// pruneList is prune for lists whose items are merged.
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
	dropped := m.pruneItems(p.shape, items, last, owned, func(at int, c candidate) {
		if !c.keep {
			m.values(p.element, v.Index(at), reflect.Value{})
			return
		}
		m.keepsKeys(p.shape, items, at, c.owned, func(name string) bool {
			f := p.element.field(&step{kind: fieldStep, name: name})
			if f == nil {
				return false
			}
			_, has := f.of(v.Index(at))
			return has
		})
		m.failed = m.prune(p.element, v.Index(at), c.last.sub, c.ownedBelow()) || m.failed
	})
	if len(dropped) == 0 || m.failed {
		return false
	}
	out := reflect.MakeSlice(v.Type(), 0, n-len(dropped))
	for i := range n {
		if !dropped[i] {
			out = reflect.Append(out, v.Index(i))
		}
	}
	v.Set(out)
	return out.Len() == 0
}

// pruneItems visits the items of a list that are in the last fields, and returns the indexes of those that are removed.
func (m *merge) pruneItems(s *shape, items []keyed, last, owned *set, visit func(at int, c candidate)) map[int]bool {
	if m.failed {
		return nil
	}
	sorted := slices.Clone(items)
	if !sortKeyed(sorted) {
		m.failed = true
		return nil
	}
	var dropped map[int]bool
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
		c := m.candidate(&last.items[i], owned, false)
		if m.failed {
			return nil
		}
		m.push(*st)
		visit(at, c)
		m.pop()
		if !c.keep {
			if dropped == nil {
				dropped = map[int]bool{}
			}
			dropped[at] = true
		}
	}
	return dropped
}

// keepsKeys makes the merge fail if an item is kept whose key is not owned: the general algorithm would not recognize
// the item. shows reports whether the item has a key field.
func (m *merge) keepsKeys(s *shape, items []keyed, at int, owned *item, shows func(name string) bool) {
	if len(s.keys) == 0 {
		return
	}
	owns := false
	for _, name := range s.keys {
		if !shows(name) {
			continue
		}
		if it, member := ownedItem(owned.sub, &step{kind: fieldStep, name: name}, false); it != nil && member {
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

// pruneTree is prune for a value of a tree. It returns the rest of the value: null if it is empty.
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
	removes := false
	for i := range last.items {
		st := &last.items[i].step
		value, has := old[st.name]
		if !has || st.kind != fieldStep {
			continue
		}
		c := m.candidate(&last.items[i], owned, s.fields[st.name] != nil)
		inner := s.field(st.name)
		if m.failed || inner == nil {
			m.failed = true
			return old
		}
		m.pushField(st.name)
		if !c.keep {
			m.recordRemoved(inner, value)
			delete(old, st.name)
			removes = true
		} else {
			old[st.name] = m.pruneTree(inner, value, c.last.sub, c.ownedBelow())
		}
		m.pop()
	}
	if removes && len(old) == 0 {
		return nil
	}
	return old
}

func (m *merge) pruneTreeList(s *shape, old []any, last, owned *set) any {
	items := m.treeKeys(s, old)
	dropped := m.pruneItems(s, items, last, owned, func(at int, c candidate) {
		if !c.keep {
			m.recordRemoved(s.item, old[at])
			return
		}
		members, _ := old[at].(map[string]any)
		m.keepsKeys(s, items, at, c.owned, func(name string) bool { _, has := members[name]; return has })
		if old[at] = m.pruneTree(s.item, old[at], c.last.sub, c.ownedBelow()); old[at] == nil {
			m.failed = true
		}
	})
	if len(dropped) == 0 || m.failed {
		return old
	}
	out := make([]any, 0, len(old)-len(dropped))
	for i := range old {
		if !dropped[i] {
			out = append(out, old[i])
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
