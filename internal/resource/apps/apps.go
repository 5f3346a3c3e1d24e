// Package apps declares the kinds of the apps API group.
package apps

import (
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

const group = "apps"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	inPods := core.NewPodGates(gates)
	return []*registry.Kind{
		controllerRevision(), daemonSet(inPods), deployment(inPods, gates), replicaSet(inPods, gates),
		statefulSet(inPods, gates),
	}
}
