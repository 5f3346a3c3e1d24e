package index

import "sync/atomic"

// LeafCache holds one value that a reader computed from the values of a leaf. Leaves are immutable: a change creates
// another leaf with an empty LeafCache. So the cached value is garbage together with the last tree that has the leaf.
// The zero value is empty. Several goroutines may use it.
type LeafCache struct{ value atomic.Pointer[any] }

// Load returns the cached value, or nil.
func (c *LeafCache) Load() any {
	if p := c.value.Load(); p != nil {
		return *p
	}
	return nil
}

// LoadOrStore returns the cached value if there is one. Otherwise it stores v and returns it.
func (c *LeafCache) LoadOrStore(v any) any {
	if c.value.CompareAndSwap(nil, &v) {
		return v
	}
	return c.Load()
}

// Leaves yields the values of Ascend leaf by leaf, until yield returns false. The second argument is the LeafCache
// of the leaf, or nil if only a part of the leaf's values is yielded. The values must not be changed.
func (t Tree[V]) Leaves(from, prefix string, yield func(values []V, note *LeafCache) bool) {
	if t.root != nil {
		t.root.leaves(max(from, prefix), prefix, yield)
	}
}

func (n *node[V]) leaves(from, prefix string, yield func([]V, *LeafCache) bool) bool {
	if n.children != nil {
		for i := n.childIndex(from); i < len(n.children); i++ {
			if !n.children[i].leaves(from, prefix, yield) {
				return false
			}
			from = "" // found; the following leaves are all above from
		}
		return true
	}
	first, end := 0, len(n.values)
	if from != "" {
		first = lowerBound(n.keys, from)
	}
	if prefix != "" {
		end = max(first, upperBound(n.keys, prefix))
	}
	switch {
	case first == 0 && end == len(n.values):
		return yield(n.values, &n.cache)
	case first < end && !yield(n.values[first:end:end], nil):
		return false
	}
	return end == len(n.values) // otherwise the next values are beyond the prefix
}
