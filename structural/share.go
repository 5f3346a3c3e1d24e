package structural

import (
	"regexp"
	"runtime"
	"sync"
	"weak"
)

// A Cache makes schemas that have in common what is equal in them: whole schemas,
// nodes and compiled patterns. It keeps nothing alive: what no schema in use refers
// to is forgotten. Its methods may be called at the same time.
type Cache struct {
	nodes      shared[digest, Schema]
	conditions shared[digest, Condition]
	patterns   shared[string, regexp.Regexp]
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{} }

// Size returns how many different nodes and patterns are in use, or were until the
// last garbage collection.
func (c *Cache) Size() (nodes, patterns int) {
	return c.nodes.size() + c.conditions.size(), c.patterns.size()
}

// shared holds one value for each key, as long as somebody else holds it too.
type shared[K comparable, V any] struct {
	mu     sync.Mutex // guards values
	values map[K]weak.Pointer[V]
}

// get returns the value of key, which is made if there is none.
func (s *shared[K, V]) get(key K, make func() (*V, error)) (*V, error) {
	if v := s.find(key); v != nil {
		return v, nil
	}
	v, err := make()
	if err != nil {
		return nil, err
	}
	return s.add(key, v), nil
}

func (s *shared[K, V]) find(key K) *V {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key].Value()
}

// add makes v the value of key, unless there is one by now, and returns the value.
func (s *shared[K, V]) add(key K, v *V) *V {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.values[key].Value(); other != nil {
		return other
	}
	if s.values == nil {
		s.values = map[K]weak.Pointer[V]{}
	}
	s.values[key] = weak.Make(v)
	runtime.AddCleanup(v, s.forget, key)
	return v
}

// forget drops a key whose value is gone. The value may have been made anew since.
func (s *shared[K, V]) forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[key].Value() == nil {
		delete(s.values, key)
	}
}

func (s *shared[K, V]) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}
