package index

import "slices"

// put sets key to v for the edit owner, and returns the previous value.
func (t *Tree[V]) put(owner uint64, key string, v V) (old V, replaced bool) {
	if t.root == nil {
		t.root = &node[V]{owner: owner, count: 1, keys: []string{key}, values: []V{v}}
		return old, false
	}
	p := putOperation[V]{owner: owner, key: key, value: v}
	root, right := p.put(t.root, true)
	if right != nil {
		root = &node[V]{
			owner:    owner,
			count:    root.count + right.count,
			keys:     []string{"", p.separator},
			children: []*node[V]{root, right},
		}
	}
	t.root = root
	return p.old, p.replaced
}

// remove deletes key for the edit owner, and returns its value.
func (t *Tree[V]) remove(owner uint64, key string) (old V, removed bool) {
	if old, removed = t.Get(key); !removed {
		return old, false
	}
	root := t.root.remove(owner, key)
	for root != nil && len(root.children) == 1 {
		root = root.children[0]
	}
	if root != nil && root.count == 0 {
		root = nil
	}
	t.root = root
	return old, true
}

// putOperation contains the parameters and results of one put while it goes down and up the tree.
type putOperation[V any] struct {
	owner     uint64
	key       string
	value     V
	old       V
	replaced  bool
	separator string // smallest key of the right half, set if put returned one
}

// put returns the writable node that replaces n and, if n had to be split, the right half. last means that n is on the
// right edge of the tree. There a split leaves the left half full, because keys that are added in ascending order never
// go to the left half again.
func (p *putOperation[V]) put(n *node[V], last bool) (*node[V], *node[V]) {
	n = n.writable(p.owner)
	if n.children == nil {
		return n, p.putLeaf(n, last)
	}
	i := n.childIndex(p.key)
	kid, right := p.put(n.children[i], last && i == len(n.children)-1)
	n.children[i] = kid
	if !p.replaced {
		n.count++
	}
	if right == nil {
		return n, nil
	}
	n.keys = slices.Insert(n.keys, i+1, p.separator)
	n.children = slices.Insert(n.children, i+1, right)
	if len(n.children) <= maxEntries {
		return n, nil
	}
	mid := len(n.children) / 2
	if last && i+2 == len(n.children) {
		mid = len(n.children) - 1
	}
	return n, p.split(n, mid)
}

// putLeaf does the work of put for a leaf that may be changed in place.
func (p *putOperation[V]) putLeaf(n *node[V], last bool) (right *node[V]) {
	i := lowerBound(n.keys, p.key)
	if i < len(n.keys) && n.keys[i] == p.key {
		p.old, p.replaced = n.values[i], true
		n.keys[i], n.values[i] = p.key, p.value
		return nil
	}
	into := n
	if len(n.keys) == maxEntries {
		mid := maxEntries / 2
		if last && i == maxEntries {
			mid = maxEntries
		}
		right = p.split(n, mid)
		if i >= mid {
			into, i = right, i-mid
		}
	}
	into.keys = slices.Insert(into.keys, i, p.key)
	into.values = slices.Insert(into.values, i, p.value)
	into.count++
	if right != nil {
		p.separator = right.keys[0]
	}
	return right
}

// split moves the entries of n from mid on to a new node, and returns it.
func (p *putOperation[V]) split(n *node[V], mid int) *node[V] {
	right := &node[V]{owner: p.owner}
	right.keys = append(right.keys, n.keys[mid:]...)
	n.keys = truncate(n.keys, mid)
	if n.children == nil {
		right.values = append(right.values, n.values[mid:]...)
		n.values = truncate(n.values, mid)
		right.count = len(right.keys)
		n.count = len(n.keys)
		return right
	}
	right.children = append(right.children, n.children[mid:]...)
	n.children = truncate(n.children, mid)
	for _, kid := range right.children {
		right.count += kid.count
	}
	n.count -= right.count
	p.separator = right.keys[0]
	return right
}

// truncate shortens s to n entries and clears the rest for the garbage collector.
func truncate[T any](s []T, n int) []T {
	clear(s[n:])
	return s[:n]
}

// writable returns n if the edit owner made it, and otherwise a copy that the edit may change.
func (n *node[V]) writable(owner uint64) *node[V] {
	if n.owner == owner {
		return n
	}
	mine := &node[V]{owner: owner, count: n.count, keys: copyWithRoom(n.keys)}
	if n.children == nil {
		mine.values = copyWithRoom(n.values)
	} else {
		mine.children = copyWithRoom(n.children)
	}
	return mine
}

// copyWithRoom copies s with room for one more entry, because the write may add one.
func copyWithRoom[T any](s []T) []T {
	return append(make([]T, 0, min(len(s)+1, maxEntries)), s...)
}

// remove deletes key, which must exist, and returns the node that replaces n.
func (n *node[V]) remove(owner uint64, key string) *node[V] {
	n = n.writable(owner)
	n.count--
	if n.children == nil {
		i := lowerBound(n.keys, key)
		n.keys = slices.Delete(n.keys, i, i+1)
		n.values = slices.Delete(n.values, i, i+1)
		return n
	}
	i := n.childIndex(key)
	kid := n.children[i].remove(owner, key)
	n.children[i] = kid
	switch {
	case kid.count == 0:
		n.keys = slices.Delete(n.keys, i, i+1)
		n.children = slices.Delete(n.children, i, i+1)
	case len(kid.keys) < minEntries && i > 0 && n.merge(owner, i-1):
	case len(kid.keys) < minEntries && i+1 < len(n.children):
		n.merge(owner, i)
	}
	return n
}

// merge merges the children i and i+1. It returns false and does nothing if the merged node would be more than three
// quarters full, because it would soon be split again.
func (n *node[V]) merge(owner uint64, i int) bool {
	left, right := n.children[i], n.children[i+1]
	if len(left.keys)+len(right.keys) > maxEntries*3/4 {
		return false
	}
	left = left.writable(owner)
	at := len(left.keys)
	left.keys = append(left.keys, right.keys...)
	left.values = append(left.values, right.values...)
	left.children = append(left.children, right.children...)
	left.count += right.count
	if left.children != nil {
		left.keys[at] = n.keys[i+1]
	}
	n.children[i] = left
	n.keys = slices.Delete(n.keys, i+1, i+2)
	n.children = slices.Delete(n.children, i+1, i+2)
	return true
}
