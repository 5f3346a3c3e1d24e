package dra

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateClaimStatus validates an update of the status of a claim.
func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path, s := field.NewPath("status"), &c.Status
	errs := validateItems(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, path.Child("reservedFor"), validateConsumer)
	allocated := allocatedDevices(s)
	errs = append(errs, field.Each(path.Child("devices"), s.Devices, func(d *resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
		return validateDeviceStatus(d, allocated, at)
	})...)
	errs = append(errs, validateReservations(c, old, path.Child("reservedFor"))...)
	// An allocation cannot be replaced, so an old one was valid when it was written.
	if s.Allocation != nil && old.Status.Allocation == nil {
		errs = append(errs,
			validateAllocation(s.Allocation, requestNames(c.Spec.Devices.Requests), path.Child("allocation"))...)
	}
	return errs
}

// validateReservations validates that a claim with users is allocated, and that a claim that is being deleted gets no new
// users.
func validateReservations(c, old *resourcev1.ResourceClaim, path *field.Path) (errs field.ErrorList) {
	users := c.Status.ReservedFor
	switch {
	case len(users) > 0 && c.Status.Allocation == nil:
		errs = append(errs, field.Forbidden(path, "may not be specified when `allocated` is not set"))
	case c.DeletionTimestamp != nil && slices.ContainsFunc(users, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, r)
	}):
		errs = append(errs, field.Forbidden(path,
			"new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	return errs
}

func validateConsumer(r *resourcev1.ResourceClaimConsumerReference, path *field.Path) (errs field.ErrorList) {
	for _, f := range []struct{ name, value string }{{"resource", r.Resource}, {"name", r.Name}, {"uid", string(r.UID)}} {
		errs = append(errs, field.NotEmpty(path.Child(f.name), f.value)...)
	}
	return errs
}

// validateAllocation validates a new allocation. Its requests must be those of the claim. The selector of nodes
// says where the devices can be used.
func validateAllocation(a *resourcev1.AllocationResult, requests map[string]bool, path *field.Path) field.ErrorList {
	v := &claimValidation{names: requests}
	at := path.Child("devices")
	errs := validateItems(a.Devices.Results, resourcev1.AllocationResultsMaxSize, at.Child("results"), v.validateResult)
	errs = append(errs, validateItems(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c *resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
			errs := v.validateReferences(c.Requests, at.Child("requests"))
			return append(errs, validateConfiguration(&c.DeviceConfiguration, resourcev1.OpaqueParametersMaxLength, at)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, core.ValidateNodeSelector(a.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, core.ValidateNodeSelectorValues(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

// validateResult validates a device that is allocated for a request.
func (v *claimValidation) validateResult(r *resourcev1.DeviceRequestAllocationResult, path *field.Path) field.ErrorList {
	errs := v.validateReference(r.Request, path.Child("request"))
	errs = append(errs, validateLongDriver(path.Child("driver"), r.Driver)...)
	errs = append(errs, field.DNSLabel(path.Child("device"), r.Device)...)
	errs = append(errs, validateBindingConditions(r.BindingConditions, r.BindingFailureConditions, path)...)
	errs = append(errs, field.Each(path.Child("tolerations"), r.Tolerations, validateToleration)...)
	return append(errs, validateSkippedOperations(r.SkipNodeOperations, path.Child("skipNodeOperations"))...)
}

// deviceKey identifies an allocated device. It has the fields that kube-apiserver shows in errors.
type deviceKey struct{ Driver, Pool, Device, ShareID string }

// resultKey and statusKey return the key of an allocated device.
func resultKey(r *resourcev1.DeviceRequestAllocationResult) deviceKey {
	return deviceKey{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}
}

func statusKey(d *resourcev1.AllocatedDeviceStatus) deviceKey {
	return deviceKey{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

func allocatedDevices(s *resourcev1.ResourceClaimStatus) map[deviceKey]bool {
	all := map[deviceKey]bool{}
	if s.Allocation != nil {
		for i := range s.Allocation.Devices.Results {
			all[resultKey(&s.Allocation.Devices.Results[i])] = true
		}
	}
	return all
}

// dropDeallocated removes the statuses of devices that the claim had before and does not have any more.
// The scheduler, which removes the allocation, may not know the statuses, which drivers write. The status of a
// device that was never allocated stays, and validateDeviceStatus refuses it.
func dropDeallocated(s, old *resourcev1.ResourceClaimStatus) {
	before, now := allocatedDevices(old), allocatedDevices(s)
	s.Devices = slices.DeleteFunc(s.Devices, func(d resourcev1.AllocatedDeviceStatus) bool {
		key := statusKey(&d)
		return before[key] && !now[key]
	})
	if len(s.Devices) == 0 {
		s.Devices = nil
	}
}

func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, allocated map[deviceKey]bool, path *field.Path) field.ErrorList {
	errs := validateDriver(path.Child("driver"), d.Driver)
	errs = append(errs, validatePool(path.Child("pool"), d.Pool)...)
	errs = append(errs, field.DNSLabel(path.Child("device"), d.Device)...)
	key := statusKey(d)
	errs = append(errs, field.InvalidIf(!allocated[key], path, key, "must be an allocated device in the claim")...)
	at := path.Child("conditions")
	errs = append(errs, field.MaxItems(at, len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions)...)
	errs = append(errs, metav1validation.ValidateConditions(d.Conditions, at.K8s())...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateData(d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))...)
	}
	return append(errs, field.IfPresent(path.Child("networkData"), d.NetworkData, validateNetworkData)...)
}

func validateNetworkData(n *resourcev1.NetworkDeviceData, path *field.Path) (errs field.ErrorList) {
	return validateItems(n.IPs, resourcev1.NetworkDeviceDataMaxIPs, path.Child("ips"), func(ip *string, at *field.Path) field.ErrorList {
		return validation.IsValidInterfaceAddress(at.K8s(), *ip)
	})
}
