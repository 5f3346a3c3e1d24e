package core

import (
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// Kinds returns the kinds of the core group in the order of discovery. Events are also served
// in the group events.k8s.io.
func Kinds(gates features.Gates) []*registry.Kind {
	inPods := NewPodGates(gates)
	return []*registry.Kind{
		bindings(&inPods),
		componentStatuses(),
		configMaps(),
		endpoints(gates),
		events(),
		limitRanges(),
		namespaces(),
		nodes(gates),
		persistentVolumeClaims(gates),
		persistentVolumes(gates),
		pods(inPods, newPodStatusGates(gates)),
		podTemplates(inPods),
		replicationControllers(inPods),
		resourceQuotas(),
		secrets(),
		serviceAccounts(),
		services(gates),
	}
}

var (
	// proxyVerbs and streamVerbs are the verbs in discovery. The HTTP methods are in proxyMethods and
	// streamMethods.
	proxyVerbs  = []string{"create", "delete", "get", "patch", "update"}
	streamVerbs = []string{"create", "get"}
)

// onlyV1 returns the versions of a kind that has only v1, with objects of type *T. defaults
// may be nil.
func onlyV1[T any, P interface {
	*T
	registry.Object
}](defaults func(P)) []registry.Version {
	return []registry.Version{declare.Version[T]("v1", defaults)}
}
