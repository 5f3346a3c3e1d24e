package index

// Set is a tree of values by key with secondary indexes: for each indexed field
// and each of its values, a tree of the values that have it. A Set never changes;
// Edit makes another one that shares what stays the same.
type Set[V any] struct {
	all      Tree[V]
	fields   []Tree[Tree[V]]
	fieldsOf func(V) []string
	// edits numbers the edits that led here. Every node of the set was made by
	// an edit of at most that number, so the next edit's number is its own.
	edits uint64
}

// NewSet returns an empty set with that many secondary indexes. fields gives a
// value's field values in the order of the indexes; a value with fewer is left
// out of the others. A value's fields must not change.
func NewSet[V any](indexes int, fields func(V) []string) Set[V] {
	return Set[V]{fields: make([]Tree[Tree[V]], indexes), fieldsOf: fields}
}

// All is the tree of all values by key.
func (s Set[V]) All() Tree[V] { return s.all }

// By is the tree of the values whose field of that index has that value.
func (s Set[V]) WithField(index int, value string) Tree[V] {
	t, _ := s.fields[index].Get(value)
	return t
}

// Values returns how many different values the field of an index has.
func (s Set[V]) FieldValues(index int) int { return s.fields[index].Len() }

// Edit starts a series of changes. Nodes are copied once an edit, however many
// of its changes touch them.
func (s Set[V]) Edit() *Edit[V] {
	e := &Edit[V]{set: s}
	e.set.edits++
	e.set.fields = append([]Tree[Tree[V]](nil), s.fields...)
	return e
}

// Edit is a series of changes to a Set. It is used by one goroutine.
type Edit[V any] struct{ set Set[V] }

// Get returns the value of key as the edit has it so far.
func (e *Edit[V]) Get(key string) (V, bool) { return e.set.all.Get(key) }

// Put sets key to v and returns the value it replaces.
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

func (e *Edit[V]) addToIndex(index int, value, key string, v V) {
	s := &e.set
	t, _ := s.fields[index].Get(value)
	root := t.root
	t.put(s.edits, key, v)
	if t.root != root {
		s.fields[index].put(s.edits, value, t)
	}
}

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
