// Package shared has a map that keeps one value for each key while the value is used elsewhere.
package shared

import (
	"runtime"
	"sync"
	"weak"
)

// Map holds at most one value for each key, weakly: a value is removed when nothing else refers to it. The zero Map
// is empty. Its methods may be called concurrently.
type Map[K comparable, V any] struct {
	mu     sync.Mutex // guards values
	values map[K]weak.Pointer[V]
}

// Get returns the value of key, and calls make if there is none. Concurrent calls may each call make; all return
// the same value.
func (m *Map[K, V]) Get(key K, make func() (*V, error)) (*V, error) {
	if v := m.find(key); v != nil {
		return v, nil
	}
	v, err := make()
	if err != nil {
		return nil, err
	}
	return m.Add(key, v), nil
}

func (m *Map[K, V]) find(key K) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[key].Value()
}

// Add sets the value of key to v, unless there is one, and returns the value of key. v must not be reachable from
// the key, or it would never be freed.
func (m *Map[K, V]) Add(key K, v *V) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.values[key].Value(); other != nil {
		return other
	}
	if m.values == nil {
		m.values = map[K]weak.Pointer[V]{}
	}
	m.values[key] = weak.Make(v)
	runtime.AddCleanup(v, m.forget, key)
	return v
}

// forget removes a key whose value was freed, unless the value has been made again.
func (m *Map[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values[key].Value() == nil {
		delete(m.values, key)
	}
}

// Len returns how many keys have a value, or had one at the last garbage collection.
func (m *Map[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values)
}
