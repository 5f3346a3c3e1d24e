package managedfields

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
)

// tree merges c into the value old of a tree and returns the result. Neither value is absent.
func (m *merge) tree(s *shape, old, c any) any {
	if m.failed {
		return old
	}
	if s.leaf() {
		return m.treeLeaf(old, c)
	}
	kind := m.kindOf(s, tree{value: old})
	if sent := m.kindOf(s, tree{value: c}); m.failed || !s.plain() && kind != sent {
		m.failed = true // values of different kinds
		return old
	} else if kind == noTree {
		kind = sent
	}
	switch {
	case kind == mapTree && !s.mapAtomic:
		return m.treeMap(s, old, c)
	case kind == listTree && !s.listAtomic:
		return m.treeList(s, old, c)
	case kind == noTree: // both are null
		return c
	}
	return m.treeLeaf(old, c)
}

// treeLeaf merges a value that is owned as one.
func (m *merge) treeLeaf(old, c any) any {
	if !scheme.EqualTreeValues(old, c) {
		m.add(changed)
	} else if !identical(old, c) {
		m.failed = true // numbers that are equal, but written in another way
	}
	return runtime.DeepCopyJSONValue(c)
}

// identical reports whether two equal trees also have numbers of the same types.
func identical(a, b any) bool {
	switch a := a.(type) {
	case int64:
		_, same := b.(int64)
		return same
	case float64:
		_, same := b.(float64)
		return same
	case []any:
		b := b.([]any)
		for i := range a {
			if !identical(a[i], b[i]) {
				return false
			}
		}
	case map[string]any:
		b := b.(map[string]any)
		for name := range a {
			if !identical(a[name], b[name]) {
				return false
			}
		}
	}
	return true
}

// treeEmpty merges the empty or null value c into old and returns the result.
func (m *merge) treeEmpty(old, c any, hasItems bool) any {
	if !m.replaces(hasItems, (old == nil) == (c == nil)) {
		return old
	}
	return runtime.DeepCopyJSONValue(c)
}

// addAllOfTree merges c into a missing or empty value.
func (m *merge) addAllOfTree(s *shape, has bool, c any) any {
	m.trees(s, tree{here: has}, tree{c, true})
	return runtime.DeepCopyJSONValue(c)
}

// treeMap merges maps whose members are owned one by one.
func (m *merge) treeMap(s *shape, old, c any) any {
	left, _ := old.(map[string]any)
	right, _ := c.(map[string]any)
	switch {
	case len(right) == 0:
		return m.treeEmpty(old, c, len(left) > 0)
	case len(left) == 0:
		return m.addAllOfTree(s, true, c)
	}
	m.treeMembers(s, left, right)
	return left
}

// treeMembers merges the members of a map into those of another.
func (m *merge) treeMembers(s *shape, left, right map[string]any) {
	names := make([]string, 0, len(right))
	for name := range right {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		below := s.field(name)
		if below == nil {
			m.failed = true
			return
		}
		m.pushField(name)
		if old, has := left[name]; has {
			left[name] = m.tree(below, old, right[name])
		} else {
			left[name] = m.addAllOfTree(below, false, right[name])
		}
		m.pop()
	}
}

// treeList merges lists whose items are owned one by one.
func (m *merge) treeList(s *shape, old, c any) any {
	left, _ := old.([]any)
	right, _ := c.([]any)
	switch {
	case len(right) == 0:
		m.emptyList = m.emptyList || c != nil
		return m.treeEmpty(old, c, len(left) > 0)
	case len(left) == 0:
		return m.addAllOfTree(s, true, c)
	}
	order, sorted, ok := m.arranged(s, m.treeKeys(s, left), right)
	if !ok {
		return old
	}
	out := make([]any, len(order))
	for i, pair := range order {
		if pair.left >= 0 {
			out[i] = left[pair.left]
		}
	}
	places := order.places(len(right))
	for _, key := range sorted {
		i, c := places[key.at], right[key.at]
		m.push(step{kind: s.itemStep(), parts: key.parts})
		if order[i].left < 0 {
			out[i] = m.addAllOfTree(s.item, false, c)
		} else {
			out[i] = m.tree(s.item, out[i], c)
		}
		m.pop()
	}
	return out
}
