// Package apps declares the kinds of the apps API group.
package apps

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
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

// templateColumns returns the columns about the containers of a pod template.
func templateColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		table.Wide("Containers", "string", "Names of each container in the template."),
		table.Wide("Images", "string", "Images referenced by each container in the template."),
	}
}
