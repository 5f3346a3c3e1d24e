// Package batch declares the kinds of the batch API group.
package batch

import "github.com/keelson-dev/keelson/registry"

const group = "batch"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{cronJob(), job()} }
