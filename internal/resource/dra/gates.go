package dra

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func disabledInClass(gates features.Gates) declare.Disabled[*resourcev1.DeviceClass] {
	return declare.DisabledOf(gates, declare.Part(features.DRAExtendedResource,
		func(c *resourcev1.DeviceClass) bool { return c.Spec.ExtendedResourceName != nil },
		func(c *resourcev1.DeviceClass) { c.Spec.ExtendedResourceName = nil }))
}

func disabledInPoolRequest(gates features.Gates) declare.Disabled[*poolRequest] {
	return declare.DisabledOf(gates, declare.Part(features.DRAPartitionableDevicesType,
		func(r *poolRequest) bool { return r.Spec.DefaultPartitionTypeAttribute != nil },
		func(r *poolRequest) { r.Spec.DefaultPartitionTypeAttribute = nil }))
}

// choice is the choice of devices of a request or of a subrequest.
type choice struct {
	tolerations *[]resourcev1.DeviceToleration
	capacity    **resourcev1.CapacityRequirements
	derived     *[]resourcev1.DeviceDerivedAttribute
}

// eachChoice calls f for the choice of devices of every request: of the request itself and of its subrequests.
func eachChoice(s *resourcev1.ResourceClaimSpec, f func(choice)) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			f(choice{&r.Exactly.Tolerations, &r.Exactly.Capacity, &r.Exactly.DerivedAttributes})
		}
		for k := range r.FirstAvailable {
			sub := &r.FirstAvailable[k]
			f(choice{&sub.Tolerations, &sub.Capacity, &sub.DerivedAttributes})
		}
	}
}

// disabledInSpec is about specs of claims and templates.
func disabledInSpec(gates features.Gates) declare.Disabled[*resourcev1.ResourceClaimSpec] {
	return declare.DisabledOf(gates,
		declare.Parts(features.DRADeviceTaints, eachChoice, func(c choice) bool { return len(*c.tolerations) > 0 },
			func(c choice) { *c.tolerations = nil }),
		declare.Part(features.DRAConsumableCapacity, usesCapacity, func(s *resourcev1.ResourceClaimSpec) {
			for i := range s.Devices.Constraints {
				s.Devices.Constraints[i].DistinctAttribute = nil
			}
			eachChoice(s, func(c choice) { *c.capacity = nil })
		}),
		declare.Parts(features.DRADerivedAttributes, eachChoice, func(c choice) bool { return len(*c.derived) > 0 },
			func(c choice) { *c.derived = nil }))
}

// usesCapacity reports whether a claim asks for a part of the capacity of a device.
func usesCapacity(s *resourcev1.ResourceClaimSpec) bool {
	used := slices.ContainsFunc(s.Devices.Constraints,
		func(c resourcev1.DeviceConstraint) bool { return c.DistinctAttribute != nil })
	eachChoice(s, func(c choice) { used = used || *c.capacity != nil })
	return used
}

// results returns the devices that are allocated to a claim.
func results(c *resourcev1.ResourceClaim) []resourcev1.DeviceRequestAllocationResult {
	if c.Status.Allocation == nil {
		return nil
	}
	return c.Status.Allocation.Devices.Results
}

// disabledInClaimStatus is about statuses of claims. Whether the old claim uses a feature depends on its spec too.
func disabledInClaimStatus(gates features.Gates) declare.Disabled[*resourcev1.ResourceClaim] {
	return declare.DisabledOf(gates,
		declare.Part(features.DRAResourceClaimDeviceStatus,
			func(c *resourcev1.ResourceClaim) bool { return len(c.Status.Devices) > 0 },
			func(c *resourcev1.ResourceClaim) { c.Status.Devices = nil }),
		declare.Part(features.DRAConsumableCapacity, func(c *resourcev1.ResourceClaim) bool {
			return usesCapacity(&c.Spec) ||
				slices.ContainsFunc(results(c), func(r resourcev1.DeviceRequestAllocationResult) bool {
					return r.ShareID != nil || r.ConsumedCapacity != nil
				}) ||
				slices.ContainsFunc(c.Status.Devices,
					func(d resourcev1.AllocatedDeviceStatus) bool { return d.ShareID != nil })
		}, func(c *resourcev1.ResourceClaim) {
			list := results(c)
			for i := range list {
				list[i].ShareID, list[i].ConsumedCapacity = nil, nil
			}
			for i := range c.Status.Devices {
				c.Status.Devices[i].ShareID = nil
			}
		}),
		declare.Part(features.DRADeviceBindingConditions, func(c *resourcev1.ResourceClaim) bool {
			return slices.ContainsFunc(results(c), func(r resourcev1.DeviceRequestAllocationResult) bool {
				return r.BindingConditions != nil || r.BindingFailureConditions != nil
			})
		}, func(c *resourcev1.ResourceClaim) {
			list := results(c)
			for i := range list {
				list[i].BindingConditions, list[i].BindingFailureConditions = nil, nil
			}
		}),
		declare.Part(features.DRAOptionalNodeOperations, func(c *resourcev1.ResourceClaim) bool {
			return slices.ContainsFunc(results(c),
				func(r resourcev1.DeviceRequestAllocationResult) bool { return len(r.SkipNodeOperations) > 0 })
		}, func(c *resourcev1.ResourceClaim) {
			list := results(c)
			for i := range list {
				list[i].SkipNodeOperations = nil
			}
		}))
}

// deviceParts is a part of the devices of a slice.
func deviceParts(
	gate string, used func(*resourcev1.Device) bool, drop func(*resourcev1.Device),
) declare.Gated[*resourcev1.ResourceSlice] {
	return declare.Parts(gate, func(s *resourcev1.ResourceSlice, f func(*resourcev1.Device)) {
		for i := range s.Spec.Devices {
			f(&s.Spec.Devices[i])
		}
	}, used, drop)
}

func disabledInSlice(gates features.Gates) declare.Disabled[*resourcev1.ResourceSlice] {
	// bindsToNode belongs to this gate too, although it is not a condition.
	binding := deviceParts(features.DRADeviceBindingConditions, func(d *resourcev1.Device) bool {
		return len(d.BindingConditions) > 0 || len(d.BindingFailureConditions) > 0 || d.BindsToNode != nil
	}, func(d *resourcev1.Device) {
		d.BindingConditions, d.BindingFailureConditions, d.BindsToNode = nil, nil, nil
	})
	// The gate has fields of the slice and of its devices. They are one part: if the old slice has any of them,
	// all of them are kept.
	partitions := deviceParts(features.DRAPartitionableDevices, func(d *resourcev1.Device) bool {
		return len(d.ConsumesCounters) > 0 || d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil
	}, func(d *resourcev1.Device) {
		d.ConsumesCounters, d.NodeName, d.NodeSelector, d.AllNodes = nil, nil, nil, nil
	})
	return declare.DisabledOf(gates,
		deviceParts(features.DRADeviceTaints, func(d *resourcev1.Device) bool { return len(d.Taints) > 0 },
			func(d *resourcev1.Device) { d.Taints = nil }),
		declare.Part(features.DRAPartitionableDevices, func(s *resourcev1.ResourceSlice) bool {
			return len(s.Spec.SharedCounters) > 0 || s.Spec.PerDeviceNodeSelection != nil || partitions.Used(s)
		}, func(s *resourcev1.ResourceSlice) {
			s.Spec.SharedCounters, s.Spec.PerDeviceNodeSelection = nil, nil
			partitions.Drop(s)
		}),
		binding,
		deviceParts(features.DRAConsumableCapacity, usesSharing, dropSharing),
		deviceParts(features.DRADeviceCompatibilityGroups, func(d *resourcev1.Device) bool {
			return slices.ContainsFunc(d.ConsumesCounters,
				func(c resourcev1.DeviceCounterConsumption) bool { return len(c.CompatibilityGroups) > 0 })
		}, func(d *resourcev1.Device) {
			for i := range d.ConsumesCounters {
				d.ConsumesCounters[i].CompatibilityGroups = nil
			}
		}),
		deviceParts(features.DRANodeAllocatableResources,
			func(d *resourcev1.Device) bool { return len(d.NodeAllocatableResources) > 0 },
			func(d *resourcev1.Device) { d.NodeAllocatableResources = nil }),
		deviceParts(features.DRAListTypeAttributes, usesLists, dropLists),
		declare.Part(features.DRAPartitionableDevicesType,
			func(s *resourcev1.ResourceSlice) bool { return s.Spec.PartitionTypeAttribute != nil },
			func(s *resourcev1.ResourceSlice) { s.Spec.PartitionTypeAttribute = nil }),
		declare.Part(features.DRAOptionalNodeOperations,
			func(s *resourcev1.ResourceSlice) bool { return len(s.Spec.SkipNodeOperations) > 0 },
			func(s *resourcev1.ResourceSlice) { s.Spec.SkipNodeOperations = nil }),
	)
}

// usesSharing reports whether a device can be allocated several times.
func usesSharing(d *resourcev1.Device) bool {
	for _, c := range d.Capacity {
		if c.RequestPolicy != nil {
			return true
		}
	}
	return d.AllowMultipleAllocations != nil
}

func dropSharing(d *resourcev1.Device) {
	d.AllowMultipleAllocations = nil
	for name, c := range d.Capacity {
		c.RequestPolicy = nil
		d.Capacity[name] = c
	}
}

// usesLists reports whether an attribute of a device is a list of values.
func usesLists(d *resourcev1.Device) bool {
	for _, a := range d.Attributes {
		if a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil {
			return true
		}
	}
	return false
}

func dropLists(d *resourcev1.Device) {
	for name, a := range d.Attributes {
		a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
		d.Attributes[name] = a
	}
}
