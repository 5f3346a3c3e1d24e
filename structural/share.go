package structural

import (
	"regexp"

	"github.com/keelson-dev/keelson/structural/internal/shared"
)

// A Cache makes schemas that have in common what is equal in them: whole schemas,
// nodes and compiled patterns. It keeps nothing alive: what no schema in use refers
// to is forgotten. Its methods may be called at the same time.
type Cache struct {
	nodes      shared.Map[digest, Schema]
	conditions shared.Map[digest, Condition]
	patterns   shared.Map[string, regexp.Regexp]
	// written keeps schemas as they are written.
	written bool
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{} }

// Size returns how many different nodes and patterns are in use, or were until the
// last garbage collection.
func (c *Cache) Size() (nodes, patterns int) {
	return c.nodes.Len() + c.conditions.Len(), c.patterns.Len()
}
