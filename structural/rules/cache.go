package rules

import (
	"runtime"
	"sync"
	"weak"

	"github.com/keelson-dev/keelson/structural"
)

// A Cache compiles schemas so that one that several definitions share has one
// validator, whose rules are compiled once. It keeps nothing alive. The zero Cache is
// empty; its methods may be called at the same time.
type Cache struct {
	mu         sync.Mutex // guards validators
	validators map[cacheKey]weak.Pointer[Validator]
}

type cacheKey struct {
	schema *structural.Schema
	root   bool
}

// Compile returns the validator of a schema as the function of that name does.
func (c *Cache) Compile(s *structural.Schema, root bool) *Validator {
	key := cacheKey{s, root}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.validators[key].Value(); v != nil {
		return v
	}
	v := Compile(s, root)
	if v == nil {
		return nil
	}
	if c.validators == nil {
		c.validators = map[cacheKey]weak.Pointer[Validator]{}
	}
	c.validators[key] = weak.Make(v)
	runtime.AddCleanup(v, c.forget, key)
	return v
}

// forget drops a validator that nobody has any more, unless it was made anew.
func (c *Cache) forget(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.validators[key].Value() == nil {
		delete(c.validators, key)
	}
}

// Size returns how many validators are in use, or were until the last garbage
// collection.
func (c *Cache) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.validators)
}
