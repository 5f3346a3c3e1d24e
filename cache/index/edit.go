package index

import "slices"

// put sets key to v on behalf of edit owner and returns what it replaced.
func (t *Tree[V]) put(owner uint64, key string, v V) (old V, replaced bool) {
	if t.root == nil {
		t.root = &node[V]{owner: owner, count: 1, keys: []string{key}, vals: []V{v}}
		return old, false
	}
	p := putting[V]{owner: owner, key: key, value: v}
	root, right := p.put(t.root, true)
	if right != nil {
		root = &node[V]{
			owner: owner,
			count: root.count + right.count,
			keys:  []string{"", p.separator},
			kids:  []*node[V]{root, right},
		}
	}
	t.root = root
	return p.old, p.replaced
}

// remove deletes key on behalf of edit owner and returns what it held.
func (t *Tree[V]) remove(owner uint64, key string) (old V, removed bool) {
	if old, removed = t.Get(key); !removed {
		return old, false
	}
	root := t.root.remove(owner, key)
	for root != nil && len(root.kids) == 1 {
		root = root.kids[0]
	}
	if root != nil && root.count == 0 {
		root = nil
	}
	t.root = root
	return old, true
}

// putting is one put on its way down and up the tree.
type putting[V any] struct {
	owner     uint64
	key       string
	value     V
	old       V
	replaced  bool
	separator string // of the right half, where put returned one
}

// put returns the node that takes n's place and, where n had to be split, its
// right half. last says that n is on the tree's right edge: there a split leaves
// the left half full, since keys that arrive in order only ever go to the right.
func (p *putting[V]) put(n *node[V], last bool) (*node[V], *node[V]) {
	n = n.own(p.owner)
	if n.kids == nil {
		return n, p.putLeaf(n, last)
	}
	i := n.child(p.key)
	kid, right := p.put(n.kids[i], last && i == len(n.kids)-1)
	n.kids[i] = kid
	if !p.replaced {
		n.count++
	}
	if right == nil {
		return n, nil
	}
	n.keys = slices.Insert(n.keys, i+1, p.separator)
	n.kids = slices.Insert(n.kids, i+1, right)
	if len(n.kids) <= maxFan {
		return n, nil
	}
	mid := len(n.kids) / 2
	if last && i+2 == len(n.kids) {
		mid = len(n.kids) - 1
	}
	return n, p.split(n, mid)
}

func (p *putting[V]) putLeaf(n *node[V], last bool) (right *node[V]) {
	i := lowerBound(n.keys, p.key)
	if i < len(n.keys) && n.keys[i] == p.key {
		p.old, p.replaced = n.vals[i], true
		n.keys[i], n.vals[i] = p.key, p.value
		return nil
	}
	into := n
	if len(n.keys) == maxFan {
		mid := maxFan / 2
		if last && i == maxFan {
			mid = maxFan
		}
		right = p.split(n, mid)
		if i >= mid {
			into, i = right, i-mid
		}
	}
	into.keys = slices.Insert(into.keys, i, p.key)
	into.vals = slices.Insert(into.vals, i, p.value)
	into.count++
	if right != nil {
		p.separator = right.keys[0]
	}
	return right
}

// split moves what n has from mid on to a new node.
func (p *putting[V]) split(n *node[V], mid int) *node[V] {
	right := &node[V]{owner: p.owner}
	right.keys = append(right.keys, n.keys[mid:]...)
	n.keys = truncate(n.keys, mid)
	if n.kids == nil {
		right.vals = append(right.vals, n.vals[mid:]...)
		n.vals = truncate(n.vals, mid)
		right.count = len(right.keys)
		n.count = len(n.keys)
		return right
	}
	right.kids = append(right.kids, n.kids[mid:]...)
	n.kids = truncate(n.kids, mid)
	for _, kid := range right.kids {
		right.count += kid.count
	}
	n.count -= right.count
	p.separator = right.keys[0]
	return right
}

// truncate shortens s and forgets what was beyond.
func truncate[T any](s []T, n int) []T {
	clear(s[n:])
	return s[:n]
}

// own returns n if edit owner made it, and else a copy that owner may change.
func (n *node[V]) own(owner uint64) *node[V] {
	if n.owner == owner {
		return n
	}
	mine := &node[V]{owner: owner, count: n.count, keys: roomy(n.keys)}
	if n.kids == nil {
		mine.vals = roomy(n.vals)
	} else {
		mine.kids = roomy(n.kids)
	}
	return mine
}

// roomy copies s with space for one more: the write it is copied for may add.
func roomy[T any](s []T) []T {
	return append(make([]T, 0, min(len(s)+1, maxFan)), s...)
}

// remove deletes key, which is there, and returns the node in n's place.
func (n *node[V]) remove(owner uint64, key string) *node[V] {
	n = n.own(owner)
	n.count--
	if n.kids == nil {
		i := lowerBound(n.keys, key)
		n.keys = slices.Delete(n.keys, i, i+1)
		n.vals = slices.Delete(n.vals, i, i+1)
		return n
	}
	i := n.child(key)
	kid := n.kids[i].remove(owner, key)
	n.kids[i] = kid
	switch {
	case kid.count == 0:
		n.keys = slices.Delete(n.keys, i, i+1)
		n.kids = slices.Delete(n.kids, i, i+1)
	case len(kid.keys) < minFan && i > 0 && n.join(owner, i-1):
	case len(kid.keys) < minFan && i+1 < len(n.kids):
		n.join(owner, i)
	}
	return n
}

// join makes one node of kids i and i+1 if that leaves room to grow.
func (n *node[V]) join(owner uint64, i int) bool {
	left, right := n.kids[i], n.kids[i+1]
	if len(left.keys)+len(right.keys) > maxFan*3/4 {
		return false
	}
	left = left.own(owner)
	at := len(left.keys)
	left.keys = append(left.keys, right.keys...)
	left.vals = append(left.vals, right.vals...)
	left.kids = append(left.kids, right.kids...)
	left.count += right.count
	if left.kids != nil {
		left.keys[at] = n.keys[i+1]
	}
	n.kids[i] = left
	n.keys = slices.Delete(n.keys, i+1, i+2)
	n.kids = slices.Delete(n.kids, i+1, i+2)
	return true
}
