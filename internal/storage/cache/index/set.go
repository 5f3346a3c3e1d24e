package index

// Set is a tree of values by key with secondary indexes: for each indexed field and each of its values, a tree of the
// values that have it. A Set is immutable; Edit makes another one, which shares the unchanged nodes.
//
// Example: a Set of Pods with an index of the field spec.nodeName has one tree of all Pods by key, and one tree from
// node names to trees of the Pods of that node.
type Set[V any] struct {
	all      Tree[V]
	fields   []Tree[Tree[V]]
	fieldsOf func(V) []string
	// edits is the number of edits that led to this set. Every node of the set was made by an edit with at most
	// that number. So if a node has the number of the running edit, that edit made it and may change it.
	edits uint64
}

// NewSet returns an empty set with a number of secondary indexes. fields returns the values of the indexed fields of a
// value in the order of the indexes; if it returns fewer, the value is missing in the other indexes. The fields of a
// value must not change.
func NewSet[V any](indexes int, fields func(V) []string) Set[V] {
	return Set[V]{fields: make([]Tree[Tree[V]], indexes), fieldsOf: fields}
}

// All returns the tree of all values by key.
func (s Set[V]) All() Tree[V] { return s.all }

// WithField returns the tree of the values whose indexed field has the given value. index is the number of the
// index.
func (s Set[V]) WithField(index int, value string) Tree[V] {
	t, _ := s.fields[index].Get(value)
	return t
}

// FieldValues returns the number of different values of the field of an index.
func (s Set[V]) FieldValues(index int) int { return s.fields[index].Len() }

// Edit starts an edit of the set. A node is copied once in an edit, even if several changes touch it.
func (s Set[V]) Edit() *Edit[V] {
	e := &Edit[V]{set: s}
	e.set.edits++
	e.set.fields = append([]Tree[Tree[V]](nil), s.fields...)
	return e
}

// Edit is a series of changes to a Set. It is used by one goroutine.
type Edit[V any] struct{ set Set[V] }

// Get returns the value of key after the changes that the edit has made.
func (e *Edit[V]) Get(key string) (V, bool) { return e.set.all.Get(key) }

// Put sets key to v and returns the value that it replaces.
func (e *Edit[V]) Put(key string, v V) (old V, replaced bool) {
	s := &e.set
	old, replaced = s.all.put(s.edits, key, v)
	if len(s.fields) == 0 {
		return old, replaced
	}
	var before []string
	if replaced {
		before = s.fieldsOf(old)
	}
	after := s.fieldsOf(v)
	for i := range s.fields {
		if i < len(before) && (i >= len(after) || before[i] != after[i]) {
			e.removeFromIndex(i, before[i], key)
		}
		if i < len(after) {
			e.addToIndex(i, after[i], key, v)
		}
	}
	return old, replaced
}

// Delete removes key and returns the value it had.
func (e *Edit[V]) Delete(key string) (old V, removed bool) {
	s := &e.set
	old, removed = s.all.remove(s.edits, key)
	if !removed || len(s.fields) == 0 {
		return old, removed
	}
	for i, value := range s.fieldsOf(old) {
		if i < len(s.fields) {
			e.removeFromIndex(i, value, key)
		}
	}
	return old, true
}

// Done ends the edit and returns the new set. The edit must not be used again.
func (e *Edit[V]) Done() Set[V] {
	s := e.set
	e.set = Set[V]{}
	return s
}

// addToIndex adds v to the tree of a value of an indexed field.
func (e *Edit[V]) addToIndex(index int, value, key string, v V) {
	s := &e.set
	t, _ := s.fields[index].Get(value)
	root := t.root
	t.put(s.edits, key, v)
	if t.root != root {
		s.fields[index].put(s.edits, value, t)
	}
}

// removeFromIndex removes key from the tree of a value of an indexed field.
func (e *Edit[V]) removeFromIndex(index int, value, key string) {
	s := &e.set
	t, _ := s.fields[index].Get(value)
	root := t.root
	t.remove(s.edits, key)
	switch {
	case t.root == nil:
		s.fields[index].remove(s.edits, value)
	case t.root != root:
		s.fields[index].put(s.edits, value, t)
	}
}
