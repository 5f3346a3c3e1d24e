// Package autoscaling declares the kinds of the autoscaling API group.
package autoscaling

import (
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const group = "autoscaling"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	return []*registry.Kind{horizontalPodAutoscaler(gates)}
}
