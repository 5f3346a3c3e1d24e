// Package dra declares the kinds of the resource.k8s.io API group: dynamic
// resource allocation.
package dra

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const group = "resource.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	return []*registry.Kind{
		deviceClass(gates), deviceTaintRule(), resourceClaim(gates), resourceClaimTemplate(gates), resourcePoolStatusRequest(gates),
		resourceSlice(gates),
	}
}

func defaultClaimSpec(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		request := &s.Devices.Requests[i]
		if exact := request.Exactly; exact != nil {
			defaultCount(&exact.AllocationMode, &exact.Count)
			defaultTolerations(exact.Tolerations)
		}
		for k := range request.FirstAvailable {
			sub := &request.FirstAvailable[k]
			defaultCount(&sub.AllocationMode, &sub.Count)
			defaultTolerations(sub.Tolerations)
		}
	}
}

// defaultCount sets the defaults of how many devices are wanted: one. The mode All has no count, so its count
// stays 0.
func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	declare.Value(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		declare.Value(count, 1)
	}
}

// defaultTolerations sets the operator Equal, which a missing operator also means in a toleration of a pod.
func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		declare.Value(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}
