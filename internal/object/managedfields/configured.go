package managedfields

import (
	"slices"
)

// applied records the fields that a value of an applied configuration mentions. The walk fails on a value that the
// general algorithm refuses.
func (w *walk) applied(s *shape, v any) {
	kind := w.kindOf(s, tree{value: v})
	switch {
	case w.failed:
	case kind == mapTree, kind == noTree && s.isMap:
		if s.mapAtomic {
			w.add(changed)
			w.whole(s, v)
		} else {
			w.appliedMap(s, v)
		}
	case kind == scalarTree, kind == noTree && s.scalar != noScalar:
		w.add(changed)
	case s.listAtomic:
		w.add(changed)
		w.whole(s, v)
	default:
		w.appliedList(s, v)
	}
}

func (w *walk) appliedMap(s *shape, v any) {
	m, _ := v.(map[string]any)
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		below := s.field(name)
		if below == nil {
			w.failed = true
			return
		}
		w.pushField(name)
		w.applied(below, m[name])
		inner, isMap := m[name].(map[string]any)
		if m[name] == nil || isMap && len(inner) == 0 || s.fields[name] == nil {
			w.add(changed)
		}
		w.pop()
	}
}

func (w *walk) appliedList(s *shape, v any) {
	list, _ := v.([]any)
	kind := keyStep
	if len(s.keys) == 0 {
		kind = valueStep
	}
	items := w.treeKeys(s, list)
	if w.failed || !sortKeyed(items) {
		w.failed = true
		return
	}
	for _, it := range items {
		w.push(step{kind: kind, parts: it.parts})
		w.applied(s.item, list[it.at])
		w.add(changed)
		w.pop()
	}
}
