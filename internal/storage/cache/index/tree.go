// Package index contains the current state of a resource: a copy-on-write tree of values ordered by key, and secondary
// indexes of these values. It is a pure data structure without locks, goroutines or I/O. A Tree or a Set never changes,
// so any number of goroutines may read it without a lock.
//
// Files, in the order to read them: tree.go (reading a tree), edit.go (changing nodes), set.go (a tree with indexes and
// how it is edited), leafcache.go (values that readers cache with a leaf).
package index

import "strings"

const (
	// maxEntries bounds the entries of a node. A write copies one node per level. With 32 entries such a copy takes
	// less than a kilobyte, and a million entries need 5 levels.
	maxEntries = 32
	// A node with fewer than minEntries entries is merged with a neighbour if possible.
	minEntries = 8
)

// Tree is an ordered map from string to V, a B+ tree whose nodes are copied when they change. The zero value is empty.
// Reading takes no lock and does not allocate. Only an Edit of a Set changes a tree.
type Tree[V any] struct{ root *node[V] }

// node is a leaf or an inner node. A leaf has no children, and vals[i] is the value of keys[i]. In an inner node
// keys[i] is not above the smallest key of children[i] and above every key of children[i-1]; keys[0] is not used. All
// leaves have the same depth.
//
// A node whose owner is the number of the running edit was made by that edit, is not visible to others yet, and may be
// changed in place.
//
// Example: after the keys 00 to 99 were added in this order, the root has the leaves [00..31], [32..63], [64..95] and
// [96..99], and the keys "", "32", "64" and "96". An edit that puts key 40 copies the root and the second leaf, and
// shares the others.
type node[V any] struct {
	owner    uint64
	count    int // number of entries below the node
	keys     []string
	values   []V
	children []*node[V]
	cache    LeafCache // used by leaves only
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

// Ascend calls yield in the order of keys with the values whose keys begin with prefix and are not below from, until
// yield returns false.
func (t Tree[V]) Ascend(from, prefix string, yield func(V) bool) {
	if t.root != nil {
		t.root.ascend(max(from, prefix), prefix, yield)
	}
}

// Count returns how many keys begin with prefix and are not below from, at the cost of two look-ups.
func (t Tree[V]) Count(from, prefix string) int {
	if t.root == nil {
		return 0
	}
	return max(0, t.root.countThrough(prefix)-t.root.countBelow(max(from, prefix)))
}

// lowerBound returns the position of the first key that is not below key.
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

// childIndex returns the position of the child that contains key if any child does.
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
			from = "" // found; the following leaves are all above from
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

// countBelow returns the number of keys below key.
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

// countThrough returns the number of keys that are below prefix or begin with it.
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

// upperBound returns the position of the first key above all keys that begin with prefix.
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
