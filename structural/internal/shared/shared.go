// Package shared holds values that are equal only once, and no longer than somebody
// uses them.
package shared

import (
	"runtime"
	"sync"
	"weak"
)

// A Map holds one value for each key, as long as somebody else holds it too. The
// zero Map is empty. Its methods may be called at the same time.
type Map[K comparable, V any] struct {
	mu     sync.Mutex // guards values
	values map[K]weak.Pointer[V]
}

// Get returns the value of key, which is made if there is none. Several may be made
// at the same time; one is returned to all.
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

// Add makes v the value of key, unless there is one, and returns the value. v must not
// be reachable from the key.
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

// forget drops a key whose value is gone. The value may have been made anew since.
func (m *Map[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values[key].Value() == nil {
		delete(m.values, key)
	}
}

// Len returns how many keys have a value, or had one until the last garbage
// collection.
func (m *Map[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values)
}
