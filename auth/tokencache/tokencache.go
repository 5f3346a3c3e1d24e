// Package tokencache remembers what was found out about bearer tokens, by their
// hash, in bounded memory.
package tokencache

import (
	"crypto/sha256"
	"sync"
)

// Key is the hash of a token.
type Key = [sha256.Size]byte

// Counter counts what a cache is good for. Both functions must be there.
type Counter struct {
	// Hit is called for a token that is known, Miss for one that had to be looked at,
	// with whether that found anything out.
	Hit  func()
	Miss func(ok bool)
}

// Uncounted counts nothing.
func Uncounted() Counter { return Counter{Hit: func() {}, Miss: func(bool) {}} }

// Cache is a bounded map. It is safe for concurrent use.
//
// It has two generations: what is asked for moves to the young one, and when that
// is full the old one is dropped and the young one becomes old. So it costs no
// list, and what is used stays.
type Cache[V any] struct {
	mu         sync.RWMutex // guards young and old
	young, old map[Key]V
	size       int // of a generation
}

// New returns a cache of at least size and at most twice as many entries.
func New[V any](size int) *Cache[V] {
	return &Cache[V]{young: map[Key]V{}, size: size}
}

// Get returns what is remembered of a token.
func (c *Cache[V]) Get(k Key) (V, bool) {
	c.mu.RLock()
	v, ok := c.young[k]
	if ok {
		c.mu.RUnlock()
		return v, true
	}
	v, ok = c.old[k]
	c.mu.RUnlock()
	if ok {
		c.Put(k, v)
	}
	return v, ok
}

// Put remembers v.
func (c *Cache[V]) Put(k Key, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.young[k]; !known && len(c.young) >= c.size {
		c.old, c.young = c.young, make(map[Key]V, c.size/2)
	}
	c.young[k] = v
}

// Clear forgets everything.
func (c *Cache[V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old = map[Key]V{}, nil
}
