// Package batch declares the kinds of the batch API group.
package batch

import (
	"github.com/keelson-dev/keelson/features"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
)

const group = "batch"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	inPods := core.NewPodGates(gates)
	return []*registry.Kind{cronJob(inPods), job(inPods)}
}
