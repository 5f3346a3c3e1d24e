package index

import "sync/atomic"

// Note holds what a reader keeps beside a leaf about the values in it. A leaf does
// not change: a tree with another value in its place has another leaf there, without
// a note. What is noted goes with the last tree that has the leaf. The zero value is
// empty; it may be used by several goroutines.
type LeafCache struct{ value atomic.Pointer[any] }

// Load returns what is noted, nil for nothing.
func (n *LeafCache) Load() any {
	if p := n.value.Load(); p != nil {
		return *p
	}
	return nil
}

// Keep notes v unless something is noted, and returns what is.
func (n *LeafCache) LoadOrStore(v any) any {
	if n.value.CompareAndSwap(nil, &v) {
		return v
	}
	return n.Load()
}

// Leaves yields what Ascend does, leaf by leaf, until yield returns false. The note
// is that of the leaf, and nil where only a part of its values is asked for. The
// values must not be changed.
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
			from = "" // reached: what follows is above it
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
	return end == len(n.values) // what follows is beyond the prefix
}
