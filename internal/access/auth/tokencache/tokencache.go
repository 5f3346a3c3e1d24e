// Package tokencache caches the results of authenticating bearer tokens, by the hash of the token, in bounded memory.
package tokencache

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Key is the hash of a token.
type Key = [sha256.Size]byte

// A Recorder records how a cache is used, for metrics. All functions must be set.
type Recorder struct {
	// Requested is called for a token whose evaluation began at start. hit reports whether the token was in the
	// cache.
	Requested func(hit bool, start time.Time)
	// Fetching is called before a token that is not in the cache is evaluated. The function that it returns is called
	// afterwards; ok reports whether that had no error.
	Fetching func() (done func(ok bool))
	// Waiting is called when a request waits for an evaluation, its own or that of another request. The function that it
	// returns is called afterwards.
	Waiting func() (done func())
}

// Cache is a bounded map. It is safe for concurrent use.
//
// It has two generations. Get moves an entry to the young generation. When that is full, the
// old generation is dropped and the young one becomes old. So entries that are used stay in
// the cache, without the cost of a linked list.
type Cache[V any] struct {
	mu         sync.RWMutex // guards young and old
	young, old map[Key]V
	size       int // entries of one generation
}

// New returns a cache of at least size and at most twice as many entries.
func New[V any](size int) *Cache[V] {
	return &Cache[V]{young: map[Key]V{}, size: size}
}

// Get returns the entry of a token.
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

// Put adds or replaces the entry of a token.
func (c *Cache[V]) Put(k Key, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.young[k]; !known && len(c.young) >= c.size {
		c.old, c.young = c.young, make(map[Key]V, c.size/2)
	}
	c.young[k] = v
}
