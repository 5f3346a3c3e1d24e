package celrules

import (
	"runtime"
	"sync"
	"weak"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// Cache keeps one validator for each schema, so that definitions that share a schema share its compiled rules. It
// holds validators weakly. The zero Cache is empty. Its methods may be called concurrently.
type Cache struct {
	mu         sync.Mutex // guards validators
	validators map[cacheKey]weak.Pointer[Validator]
}

type cacheKey struct {
	schema *structuralschema.Schema
	root   bool
}

// Compile does what the function Compile does, with a shared result.
func (c *Cache) Compile(s *structuralschema.Schema, root bool) *Validator {
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

// forget removes the entry of a validator that was freed, unless it has been made again.
func (c *Cache) forget(key cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.validators[key].Value() == nil {
		delete(c.validators, key)
	}
}

// Size returns how many validators are in use, or were in use at the last garbage collection.
func (c *Cache) Size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.validators)
}
