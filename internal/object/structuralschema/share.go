package structuralschema

import (
	"regexp"

	"github.com/keelson-dev/keelson/internal/object/structuralschema/internal/shared"
)

// Cache makes schemas that share equal nodes and compiled patterns. It holds them weakly: those that no schema in
// use refers to are freed. Its methods may be called concurrently.
type Cache struct {
	nodes      shared.Map[digest, Schema]
	conditions shared.Map[digest, Condition]
	patterns   shared.Map[string, regexp.Regexp]
	// written is true in the cache of the function Written.
	written bool
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{} }

// Size returns the number of different nodes and patterns that are in use, or were in use at the last garbage
// collection.
func (c *Cache) Size() (nodes, patterns int) {
	return c.nodes.Len() + c.conditions.Len(), c.patterns.Len()
}
