package managedfields

import (
	"reflect"
	"slices"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// A tree is decoded JSON, or absent.
type tree struct {
	value any
	here  bool
}

// convert returns the tree of a value whose type has its own conversion.
func (w *walk) convert(g *goType, v reflect.Value) tree {
	if !v.IsValid() {
		return tree{}
	}
	if g.kind == pointerKind {
		if v.IsNil() {
			return tree{here: true}
		}
		g, v = g.element, v.Elem()
	}
	out, err := g.entry.ToUnstructured(addressable(v))
	if err != nil {
		w.failed = true
	}
	return tree{value: out, here: true}
}

// trees compares two trees by a shape.
func (w *walk) trees(s *shape, l, r tree) {
	if w.failed {
		return
	}
	kindL, kindR := w.kindOf(s, l), w.kindOf(s, r)
	if w.failed {
		return
	}
	if s.leaf() {
		w.atomic(s, l, r)
		return
	}
	kind := kindL
	if kind == noTree {
		kind = kindR
	}
	if !s.plain() {
		// The general algorithm compares values of different kinds, and null with a value, twice.
		if l.here && r.here && kindL != kindR {
			w.failed = true
			return
		}
	}
	switch {
	case kind == mapTree, kind == noTree && s.isMap:
		if s.mapAtomic {
			w.atomic(s, l, r)
		} else {
			w.treeMaps(s, l, r)
		}
	case kind == scalarTree, kind == noTree && s.scalar != noScalar:
		w.atomic(s, l, r)
	default:
		if s.listAtomic {
			w.atomic(s, l, r)
		} else {
			w.treeLists(s, l, r)
		}
	}
}

func (w *walk) atomic(s *shape, l, r tree) {
	w.whole(s, l.value)
	w.whole(s, r.value)
	if !l.here || !r.here {
		w.presence(l.here, r.here)
	} else if !scheme.EqualTreeValues(l.value, r.value) {
		w.add(changed)
	}
}

type treeKind uint8

const (
	noTree treeKind = iota
	scalarTree
	listTree
	mapTree
)

// kindOf returns the kind of a value, noTree if it is absent or null. The walk fails on a value that the shape does
// not allow.
func (w *walk) kindOf(s *shape, t tree) treeKind {
	ok := true
	kind := noTree
	switch v := t.value.(type) {
	case nil:
	case map[string]any:
		kind, ok = mapTree, s.isMap
		if v == nil {
			ok = false
		}
	case []any:
		kind, ok = listTree, s.isList
		if v == nil {
			ok = false
		}
	case string:
		kind, ok = scalarTree, s.scalar == text || s.scalar == untyped
	case bool:
		kind, ok = scalarTree, s.scalar == boolean || s.scalar == untyped
	case int64, float64:
		kind, ok = scalarTree, s.scalar == numeric || s.scalar == untyped
	default:
		ok = false
	}
	if !ok {
		w.failed = true
	}
	return kind
}

// whole makes the walk fail if a value does not fit its shape.
func (w *walk) whole(s *shape, v any) {
	if w.failed {
		return
	}
	w.kindOf(s, tree{value: v})
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			inner := s.field(name)
			if inner == nil {
				w.failed = true
				return
			}
			w.whole(inner, below)
		}
	case []any:
		if w.failed {
			return
		}
		if s.associative {
			w.emptyList = w.emptyList || len(v) == 0
			items := w.treeKeys(s, v)
			w.failed = w.failed || w.unique && !sortKeyed(items)
		}
		for _, below := range v {
			w.whole(s.item, below)
		}
	}
}

func (w *walk) treeMaps(s *shape, l, r tree) {
	left, _ := l.value.(map[string]any)
	right, _ := r.value.(map[string]any)
	keys := make([]string, 0, max(len(left), len(right)))
	for name := range left {
		keys = append(keys, name)
	}
	for name := range right {
		if _, both := left[name]; !both {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	for _, name := range keys {
		below := s.field(name)
		if below == nil {
			w.failed = true
			return
		}
		a, hasA := left[name]
		b, hasB := right[name]
		if w.depth == 0 && w.reset.has(name) {
			w.whole(below, a)
			w.whole(below, b)
			continue
		}
		w.pushField(name)
		w.trees(below, tree{a, hasA}, tree{b, hasB})
		w.pop()
	}
	w.around(l.here, r.here, (l.value == nil) == (r.value == nil), len(keys) > 0)
}

func (w *walk) treeLists(s *shape, l, r tree) {
	left, _ := l.value.([]any)
	right, _ := r.value.([]any)
	w.emptyList = w.emptyList || left != nil && len(left) == 0 || right != nil && len(right) == 0
	a, b := w.treeKeys(s, left), w.treeKeys(s, right)
	w.pairs(s.itemStep(), a, b, func(i, j int) { w.trees(s.item, treeAt(left, i), treeAt(right, j)) })
	w.around(l.here, r.here, (l.value == nil) == (r.value == nil), len(left)+len(right) > 0)
}

func treeAt(list []any, i int) tree {
	if i < 0 {
		return tree{}
	}
	return tree{value: list[i], here: true}
}

// treeKeys returns the keys of the items of a list.
func (w *walk) treeKeys(s *shape, list []any) []keyed {
	out := make([]keyed, 0, len(list))
	parts := make([]part, 0, len(list)*max(1, len(s.keys)))
	for i := range list {
		start := len(parts)
		if len(s.keys) == 0 {
			p, ok := partOf(list[i])
			if !ok {
				w.failed = true
				return nil
			}
			parts = append(parts, p)
		} else if m, ok := list[i].(map[string]any); ok {
			parts = w.treeParts(s, m, parts)
		}
		if len(parts) == start {
			w.failed = true
			return nil
		}
		out = append(out, keyed{parts: parts[start:len(parts):len(parts)], at: i})
	}
	return out
}

func (w *walk) treeParts(s *shape, m map[string]any, parts []part) []part {
	for _, name := range s.keys {
		field := s.item.fields[name]
		if v, has := m[name]; has {
			p, ok := partOf(v)
			if !ok {
				w.failed = true
			}
			p.name = name
			parts = append(parts, p)
		} else if field != nil && field.hasFallback {
			parts = append(parts, field.fallback)
		}
	}
	return parts
}
