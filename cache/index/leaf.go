package index

import "sync/atomic"

// Note holds what a reader keeps beside a leaf about the values in it. A leaf does
// not change: a tree with another value in its place has another leaf there, without
// a note. What is noted goes with the last tree that has the leaf. The zero value is
// empty; it may be used by several goroutines.
type Note struct{ held atomic.Pointer[any] }

// Load returns what is noted, nil for nothing.
func (n *Note) Load() any {
	if p := n.held.Load(); p != nil {
		return *p
	}
	return nil
}

// Keep notes v unless something is noted, and returns what is.
func (n *Note) Keep(v any) any {
	if n.held.CompareAndSwap(nil, &v) {
		return v
	}
	return n.Load()
}

// Leaves yields what Ascend does, leaf by leaf, until yield returns false. The note
// is that of the leaf, and nil where only a part of its values is asked for. The
// values must not be changed.
func (t Tree[V]) Leaves(from, prefix string, yield func(values []V, note *Note) bool) {
	if t.root != nil {
		t.root.leaves(max(from, prefix), prefix, yield)
	}
}

func (n *node[V]) leaves(from, prefix string, yield func([]V, *Note) bool) bool {
	if n.kids != nil {
		for i := n.child(from); i < len(n.kids); i++ {
			if !n.kids[i].leaves(from, prefix, yield) {
				return false
			}
			from = "" // reached: what follows is above it
		}
		return true
	}
	first, end := 0, len(n.vals)
	if from != "" {
		first = lowerBound(n.keys, from)
	}
	if prefix != "" {
		end = max(first, upperBound(n.keys, prefix))
	}
	switch {
	case first == 0 && end == len(n.vals):
		return yield(n.vals, &n.note)
	case first < end && !yield(n.vals[first:end:end], nil):
		return false
	}
	return end == len(n.vals) // what follows is beyond the prefix
}
