// Package batch declares the kinds of the batch API group.
package batch

import (
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

const group = "batch"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	inPods := core.NewPodGates(gates)
	return []*registry.Kind{cronJob(inPods), job(inPods)}
}
