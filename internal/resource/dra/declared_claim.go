package dra

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// claim applies the declared rules of claims. old is nil on create.
// The spec cannot change: the scheduler may already have allocated devices by it.
func (d *declared) claim(c, old *resourcev1.ResourceClaim) {
	spec := field.NewPath("spec")
	switch {
	case old == nil:
		d.deviceClaim(&c.Spec.Devices, nil, spec.Child("devices"))
	case !d.kept(c.Spec, old.Spec, true):
		d.errs = append(d.errs, field.Invalid(spec, nil, "field is immutable"))
	}
	d.claimStatus(&c.Status, part(old, func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaimStatus { return &c.Status }),
		field.NewPath("status"))
}

// deviceClaim applies the rules of what a claim or a template asks for.
func (d *declared) deviceClaim(c, old *resourcev1.DeviceClaim, path *field.Path) {
	before := ptr.Deref(old, resourcev1.DeviceClaim{})
	at := path.Child("requests")
	if !d.kept(c.Requests, before.Requests, old != nil) && d.atMost(resourcev1.DeviceRequestsMaxSize, len(c.Requests), at) {
		same := func(a, b *resourcev1.DeviceRequest) bool { return a.Name == b.Name }
		unique(d, at, c.Requests, same, d.shownRequest)
		matched(d, at, c.Requests, before.Requests, same, d.request)
	}
	at = path.Child("constraints")
	if !d.kept(c.Constraints, before.Constraints, old != nil) &&
		d.atMost(resourcev1.DeviceConstraintsMaxSize, len(c.Constraints), at) {
		for i := range c.Constraints {
			constraint, at := &c.Constraints[i], at.Index(i)
			d.references(constraint.Requests, at.Child("requests"))
			optionalPointer(d, at.Child("matchAttribute"), constraint.MatchAttribute,
				validate.ResourceFullyQualifiedName[resourcev1.FullyQualifiedName])
			optionalPointer(d, at.Child("distinctAttribute"), constraint.DistinctAttribute,
				validate.ResourceFullyQualifiedName[resourcev1.FullyQualifiedName])
		}
	}
	at = path.Child("config")
	if !d.kept(c.Config, before.Config, old != nil) && d.atMost(resourcev1.DeviceConfigMaxSize, len(c.Config), at) {
		for i := range c.Config {
			d.references(c.Config[i].Requests, at.Index(i).Child("requests"))
			d.configuration(&c.Config[i].DeviceConfiguration, at.Index(i))
		}
	}
}

// shownRequest returns a request as the error for a repeated one has it.
func (d *declared) shownRequest(r *resourcev1.DeviceRequest) any {
	if d.flat {
		if flat, err := requestsFromV1([]resourcev1.DeviceRequest{*r}); err == nil {
			return flat[0]
		}
	}
	return *r
}

// references applies the rules of a list of names of requests.
// An empty list means all requests.
func (d *declared) references(list []string, path *field.Path) {
	if d.atMost(resourcev1.DeviceRequestsMaxSize, len(list), path) {
		unique(d, path, list, equal, whole)
	}
}

func (d *declared) configuration(c *resourcev1.DeviceConfiguration, path *field.Path) {
	if c.Opaque == nil {
		return
	}
	before := len(d.errs)
	d.driver(c.Opaque.Driver, path.Child("opaque", "driver"))
	if d.old { // these versions have the rules in the opposite order
		slices.Reverse(d.errs[before:])
	}
}

// request applies the rules of a request. old is the request with the same name in the old object, nil if there is
// none.
func (d *declared) request(r, old *resourcev1.DeviceRequest, path *field.Path) {
	before := ptr.Deref(old, resourcev1.DeviceRequest{})
	if e := r.Exactly; e != nil && !d.kept(e, before.Exactly, old != nil) {
		is := ptr.Deref(before.Exactly, resourcev1.ExactDeviceRequest{})
		d.devices(
			&devices{e.Selectors, e.AllocationMode, e.Count, e.Tolerations, e.DerivedAttributes},
			&devices{is.Selectors, is.AllocationMode, is.Count, is.Tolerations, is.DerivedAttributes},
			before.Exactly != nil, path.Child("exactly"))
	}
	at := path.Child("firstAvailable")
	if !d.kept(r.FirstAvailable, before.FirstAvailable, old != nil) &&
		d.atMost(resourcev1.FirstAvailableDeviceRequestMaxSize, len(r.FirstAvailable), at) {
		same := func(a, b *resourcev1.DeviceSubRequest) bool { return a.Name == b.Name }
		unique(d, at, r.FirstAvailable, same, whole)
		matched(d, at, r.FirstAvailable, before.FirstAvailable, same, d.subrequest)
	}
}

func (d *declared) subrequest(s, old *resourcev1.DeviceSubRequest, path *field.Path) {
	is := ptr.Deref(old, resourcev1.DeviceSubRequest{})
	if !d.kept(s.DeviceClassName, is.DeviceClassName, old != nil) {
		required(d, path.Child("deviceClassName"), s.DeviceClassName, validate.LongName[string])
	}
	d.devices(
		&devices{s.Selectors, s.AllocationMode, s.Count, s.Tolerations, s.DerivedAttributes},
		&devices{is.Selectors, is.AllocationMode, is.Count, is.Tolerations, is.DerivedAttributes},
		old != nil, path)
}

// devices applies the rules of what requests and their alternatives both have. known reports whether there is an old value.
func (d *declared) devices(now, old *devices, known bool, path *field.Path) {
	if !d.kept(now.selectors, old.selectors, known) {
		d.atMost(resourcev1.DeviceSelectorsMaxSize, len(now.selectors), path.Child("selectors"))
	}
	if !d.kept(now.mode, old.mode, known) {
		optional(d, path.Child("allocationMode"), now.mode,
			oneOf(resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount))
	}
	if !d.kept(now.tolerations, old.tolerations, known) {
		d.tolerations(now.tolerations, path.Child("tolerations"))
	}
	at := path.Child("derivedAttributes")
	if !d.kept(now.derived, old.derived, known) && d.atMost(resourcev1.DeviceDerivedAttributesMaxSize, len(now.derived), at) {
		for i := range now.derived {
			required(d, at.Index(i).Child("name"), now.derived[i].Name,
				validate.ResourceFullyQualifiedName[resourcev1.FullyQualifiedName])
			required(d, at.Index(i).Child("expression"), now.derived[i].Expression)
		}
	}
}

func (d *declared) tolerations(list []resourcev1.DeviceToleration, path *field.Path) {
	for i := range list {
		t, at := &list[i], path.Index(i)
		optional(d, at.Child("key"), t.Key, validate.LabelKey[string])
		required(d, at.Child("operator"), t.Operator,
			oneOf(resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists))
		optional(d, at.Child("effect"), t.Effect, oneOf(taintEffects...))
	}
}

// skippedOperations applies the rules of operations that a node can skip. Those that an update keeps are not validated.
func (d *declared) skippedOperations(list, old []resourcev1.SkipNodeOperation, path *field.Path) {
	unique(d, path, list, equal, whole)
	matched(d, path, list, old, equal, func(o, _ *resourcev1.SkipNodeOperation, at *field.Path) {
		apply(d, at, o, oneOf(resourcev1.SkipNodeOperationAll, resourcev1.SkipNodeOperationNodePrepareResources,
			resourcev1.SkipNodeOperationNodeUnprepareResources))
	})
}

// claimStatus applies the rules of the status of a claim.
func (d *declared) claimStatus(s, old *resourcev1.ResourceClaimStatus, path *field.Path) {
	before := ptr.Deref(old, resourcev1.ResourceClaimStatus{})
	at := path.Child("allocation")
	switch {
	case s.Allocation == nil || d.kept(s.Allocation, before.Allocation, old != nil):
	// An allocation can be removed, but not replaced: drivers on the node may have prepared its devices.
	case d.update && before.Allocation != nil:
		d.errs = append(d.errs, field.Invalid(at, nil, "field cannot be modified once set"))
	default:
		d.allocation(&s.Allocation.Devices, at.Child("devices"))
	}
	at = path.Child("reservedFor")
	if !d.kept(s.ReservedFor, before.ReservedFor, old != nil) &&
		d.atMost(resourcev1.ResourceClaimReservedForMaxSize, len(s.ReservedFor), at) {
		unique(d, at, s.ReservedFor,
			func(a, b *resourcev1.ResourceClaimConsumerReference) bool { return a.UID == b.UID }, whole)
	}
	at = path.Child("devices")
	if !d.kept(s.Devices, before.Devices, old != nil) {
		same := func(a, b *resourcev1.AllocatedDeviceStatus) bool {
			return a.Driver == b.Driver && a.Device == b.Device && a.Pool == b.Pool && ptr.Equal(a.ShareID, b.ShareID)
		}
		unique(d, at, s.Devices, same, whole)
		matched(d, at, s.Devices, before.Devices, same, d.deviceStatus)
	}
}

func (d *declared) allocation(a *resourcev1.DeviceAllocationResult, path *field.Path) {
	if at := path.Child("results"); d.atMost(resourcev1.AllocationResultsMaxSize, len(a.Results), at) {
		for i := range a.Results {
			d.result(&a.Results[i], at.Index(i))
		}
	}
	// The list has the configurations of the claim and those of its classes.
	if at := path.Child("config"); d.atMost(2*resourcev1.DeviceConfigMaxSize, len(a.Config), at) {
		for i := range a.Config {
			c, at := &a.Config[i], at.Index(i)
			required(d, at.Child("source"), c.Source,
				oneOf(resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass))
			d.references(c.Requests, at.Child("requests"))
			d.configuration(&c.DeviceConfiguration, at)
		}
	}
}

func (d *declared) result(r *resourcev1.DeviceRequestAllocationResult, path *field.Path) {
	d.driver(r.Driver, path.Child("driver"))
	required(d, path.Child("pool"), r.Pool, validate.ResourcePoolName[string])
	d.tolerations(r.Tolerations, path.Child("tolerations"))
	d.atMost(resourcev1.BindingConditionsMaxSize, len(r.BindingConditions), path.Child("bindingConditions"))
	d.atMost(resourcev1.BindingFailureConditionsMaxSize, len(r.BindingFailureConditions),
		path.Child("bindingFailureConditions"))
	optionalPointer(d, path.Child("shareID"), (*string)(r.ShareID), validate.UUID[string])
	d.skippedOperations(r.SkipNodeOperations, nil, path.Child("skipNodeOperations"))
}

// deviceStatus applies the rules of the status that a driver reports for an allocated device (KEP-4817).
func (d *declared) deviceStatus(s, old *resourcev1.AllocatedDeviceStatus, path *field.Path) {
	if old == nil { // otherwise it is the same
		optionalPointer(d, path.Child("shareID"), s.ShareID, validate.UUID[string])
	}
	before := part(old, func(s *resourcev1.AllocatedDeviceStatus) *resourcev1.NetworkDeviceData { return s.NetworkData })
	if n := s.NetworkData; n != nil && !d.kept(n, before, old != nil) {
		d.networkData(n, before, path.Child("networkData"))
	}
}

// networkData applies the rules of the network interface of a device. The lengths are limited in bytes.
// validateNetworkData validates the form of the addresses.
func (d *declared) networkData(n, old *resourcev1.NetworkDeviceData, path *field.Path) {
	before := ptr.Deref(old, resourcev1.NetworkDeviceData{})
	if !d.kept(n.InterfaceName, before.InterfaceName, old != nil) {
		optional(d, path.Child("interfaceName"), n.InterfaceName,
			maxBytes[string](resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
	}
	at := path.Child("ips")
	if !d.kept(n.IPs, before.IPs, old != nil) && d.atMost(resourcev1.NetworkDeviceDataMaxIPs, len(n.IPs), at) {
		unique(d, at, n.IPs, equal, whole)
	}
	if !d.kept(n.HardwareAddress, before.HardwareAddress, old != nil) {
		optional(d, path.Child("hardwareAddress"), n.HardwareAddress,
			maxBytes[string](resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
	}
}

// class applies the rules of the spec of a class. old is nil on create.
func (d *declared) class(s, old *resourcev1.DeviceClassSpec) {
	path, before := field.NewPath("spec"), ptr.Deref(old, resourcev1.DeviceClassSpec{})
	if !d.kept(s.Selectors, before.Selectors, old != nil) {
		d.atMost(resourcev1.DeviceSelectorsMaxSize, len(s.Selectors), path.Child("selectors"))
	}
	at := path.Child("config")
	if !d.kept(s.Config, before.Config, old != nil) && d.atMost(resourcev1.DeviceConfigMaxSize, len(s.Config), at) {
		for i := range s.Config {
			d.configuration(&s.Config[i].DeviceConfiguration, at.Index(i))
		}
	}
	if !d.kept(s.ExtendedResourceName, before.ExtendedResourceName, old != nil) {
		optionalPointer(d, path.Child("extendedResourceName"), s.ExtendedResourceName, validate.ExtendedResourceName[string])
	}
}
