// Package index holds the current state of a resource: a copy-on-write tree of
// values ordered by key, and secondary indexes over them. Everything in it is a
// pure data structure. A Tree or a Set that was handed out never changes, so it
// may be read by any number of goroutines without a lock.
package index

import "strings"

const (
	// maxFan bounds the entries of a node. A write copies one node a level;
	// 32 keeps such a copy below a kilobyte and a million entries in 5 levels.
	maxEntries = 32
	// minFan is the size below which a node looks for a neighbour to join.
	minEntries = 8
)

// Tree is an ordered map from string to V. The zero value is empty. Reading
// takes no lock and makes no garbage; changes go through an Edit of a Set.
type Tree[V any] struct{ root *node[V] }

// node is a leaf (kids is nil; keys and vals run in parallel) or an inner node
// (keys[i] is at most the smallest key below kids[i] and above every key below
// kids[i-1]; keys[0] is not looked at). All leaves have the same depth.
//
// A node whose owner is the running edit's number was made by that edit, is not
// yet visible to anybody else and may be changed in place.
type node[V any] struct {
	owner    uint64
	count    int // entries below
	keys     []string
	values   []V
	children []*node[V]
	cache    LeafCache // of a leaf
}

// Len returns the number of entries.
func (t Tree[V]) Len() int {
	if t.root == nil {
		return 0
	}
	return t.root.count
}

// Get returns the value of key.
func (t Tree[V]) Get(key string) (v V, ok bool) {
	n := t.root
	if n == nil {
		return v, false
	}
	for n.children != nil {
		n = n.children[n.childIndex(key)]
	}
	i := lowerBound(n.keys, key)
	if i < len(n.keys) && n.keys[i] == key {
		return n.values[i], true
	}
	return v, false
}

// Ascend calls yield in key order with the values whose keys begin with prefix
// and are at or above from, until yield returns false.
func (t Tree[V]) Ascend(from, prefix string, yield func(V) bool) {
	if t.root != nil {
		t.root.ascend(max(from, prefix), prefix, yield)
	}
}

// Count returns how many keys begin with prefix and are at or above from. Its
// cost is that of two look-ups.
func (t Tree[V]) Count(from, prefix string) int {
	if t.root == nil {
		return 0
	}
	return max(0, t.root.countThrough(prefix)-t.root.countBelow(max(from, prefix)))
}

// lowerBound returns the position of the first key at or above key.
func lowerBound(keys []string, key string) int {
	low, high := 0, len(keys)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if keys[mid] < key {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// child returns the position of the kid that holds key, if any does.
func (n *node[V]) childIndex(key string) int {
	low, high := 1, len(n.keys)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if n.keys[mid] <= key {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

func (n *node[V]) ascend(from, prefix string, yield func(V) bool) bool {
	if n.children != nil {
		for i := n.childIndex(from); i < len(n.children); i++ {
			if !n.children[i].ascend(from, prefix, yield) {
				return false
			}
			from = "" // reached: what follows is above it
		}
		return true
	}
	first := 0
	if from != "" {
		first = lowerBound(n.keys, from)
	}
	if first == len(n.keys) {
		return true
	}
	if strings.HasPrefix(n.keys[len(n.keys)-1], prefix) {
		for _, v := range n.values[first:] {
			if !yield(v) {
				return false
			}
		}
		return true
	}
	for i := first; i < len(n.keys); i++ {
		if !strings.HasPrefix(n.keys[i], prefix) || !yield(n.values[i]) {
			return false
		}
	}
	return true
}

// below counts the keys under key.
func (n *node[V]) countBelow(key string) int {
	total := 0
	for n.children != nil {
		c := n.childIndex(key)
		for _, kid := range n.children[:c] {
			total += kid.count
		}
		n = n.children[c]
	}
	return total + lowerBound(n.keys, key)
}

// through counts the keys that are under prefix or begin with it.
func (n *node[V]) countThrough(prefix string) int {
	if prefix == "" {
		return n.count
	}
	total := 0
	for n.children != nil {
		c := 1 + upperBound(n.keys[1:], prefix)
		for _, kid := range n.children[:c-1] {
			total += kid.count
		}
		n = n.children[c-1]
	}
	return total + upperBound(n.keys, prefix)
}

// upperBound returns the position of the first key beyond all keys that begin
// with prefix.
func upperBound(keys []string, prefix string) int {
	low, high := 0, len(keys)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if keys[mid] < prefix || strings.HasPrefix(keys[mid], prefix) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
