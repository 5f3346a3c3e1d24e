package managedfields

import (
	"container/list"
	"hash/maphash"
	"sync"
)

const smallCacheBytes = 64 << 10

// A Cache keeps the field sets that were used last, by their fieldsV1. Objects that are made from one template
// have the same field sets, and an object often has the same ones as at its last write. It may be used
// concurrently.
type Cache struct {
	seed maphash.Seed
	max  int

	mu    sync.Mutex // guards what follows
	bytes int
	known map[uint64]*list.Element
	used  *list.List // of *cached, the one that was used last first
}

type cached struct {
	hash uint64
	raw  string
	// set is nil if raw is not exactly the text that set.fields would write.
	set *set
	// fits is the last shape that the set was found to fit.
	fits *shape
	// tree is the set as a tree, nil until it is needed.
	tree map[string]any
	// fields is the encoded set if raw is a tape (tape.go). It is empty if the set is empty.
	fields []byte
}

// weight returns how many bytes of a Cache an entry takes.
func (c *cached) weight() int {
	if c.tree != nil {
		return 2 * len(c.raw)
	}
	return len(c.raw) + len(c.fields)
}

// NewCache returns a Cache for about maxBytes of fieldsV1. The decoded sets take about five times as much memory.
func NewCache(maxBytes int) *Cache {
	return &Cache{seed: maphash.MakeSeed(), max: maxBytes, known: map[uint64]*list.Element{}, used: list.New()}
}

// set decodes raw. It returns false if raw does not fit the shape, or if the general algorithm has to decode it.
func (c *Cache) set(raw []byte, s *shape) (*set, bool) {
	hash := maphash.Bytes(c.seed, raw)
	c.mu.Lock()
	if e := c.known[hash]; e != nil && e.Value.(*cached).raw == string(raw) {
		c.used.MoveToFront(e)
		known := e.Value.(*cached)
		if known.fits != s && known.set != nil && s.fitsSchema(known.set, false) {
			known.fits = s
		}
		found, fits := known.set, known.set != nil && known.fits == s
		c.mu.Unlock()
		return found, fits
	}
	c.mu.Unlock()

	entry := &cached{hash: hash, raw: string(raw)}
	if parsed, ok := parseSet(entry.raw); ok {
		entry.set = parsed
		if s.fitsSchema(parsed, false) {
			entry.fits = s
		}
	}
	ok := entry.fits == s
	c.add(entry)
	return entry.set, ok
}

// tree returns the set s, whose fieldsV1 are raw, in the form that it has in a tree. Several trees share the
// result, so it must not be changed.
func (c *Cache) tree(raw []byte, s *set) map[string]any {
	hash := maphash.Bytes(c.seed, raw)
	c.mu.Lock()
	if e := c.known[hash]; e != nil && e.Value.(*cached).tree != nil && e.Value.(*cached).raw == string(raw) {
		c.used.MoveToFront(e)
		tree := e.Value.(*cached).tree
		c.mu.Unlock()
		return tree
	}
	c.mu.Unlock()

	entry := &cached{hash: hash, raw: string(raw), set: s, tree: s.tree()}
	c.add(entry)
	return entry.tree
}

// fields returns the encoded set that was kept for a tape, and whether there is one. It must not be changed.
func (c *Cache) fields(tape []byte) ([]byte, bool) {
	hash := maphash.Bytes(c.seed, tape)
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.known[hash]
	if e == nil || e.Value.(*cached).raw != string(tape) {
		return nil, false
	}
	c.used.MoveToFront(e)
	return e.Value.(*cached).fields, true
}

// keepFields keeps the encoded set for a tape.
func (c *Cache) keepFields(tape, fields []byte) {
	c.add(&cached{hash: maphash.Bytes(c.seed, tape), raw: string(tape), fields: fields})
}

func (c *Cache) add(entry *cached) {
	if entry.weight() > c.max/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.known[entry.hash]; e != nil {
		c.remove(e)
	}
	c.known[entry.hash] = c.used.PushFront(entry)
	c.bytes += entry.weight()
	for c.bytes > c.max {
		c.remove(c.used.Back())
	}
}

// remove is called with mu held.
func (c *Cache) remove(e *list.Element) {
	entry := c.used.Remove(e).(*cached)
	delete(c.known, entry.hash)
	c.bytes -= entry.weight()
}
