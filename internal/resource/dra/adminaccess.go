package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// Admin access gives a claim devices that others use. Only namespaces with a label allow it.
// The label is resource.kubernetes.io/admin-access: "true" (KEP-5018). Who may label namespaces decides who may
// monitor or repair devices in use.

// validateAdminRequests validates that the namespace allows the requests of a new claim or template.
// Alternatives of a request (firstAvailable) have no admin access. The error names the first such request only.
func validateAdminRequests(
	requests []resourcev1.DeviceRequest, labels func() (map[string]string, error),
) field.ErrorList {
	for i := range requests {
		if e := requests[i].Exactly; e != nil && isTrue(e.AdminAccess) {
			return requireAdminLabel(labels, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
		}
	}
	return nil
}

// validateAdminResults requires that the namespace allows admin access if the status allocates a device with it. This is not
// checked if the old status has such a device.
// So the status of such a claim can still be updated after the label was removed from the namespace.
func validateAdminResults(
	status, old *resourcev1.ResourceClaimStatus, labels func() (map[string]string, error),
) field.ErrorList {
	if adminResult(old) >= 0 {
		return nil
	}
	if i := adminResult(status); i >= 0 {
		return requireAdminLabel(labels,
			field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess"))
	}
	return nil
}

// adminResult returns the index of the first allocated device with admin access, -1 if there is none.
func adminResult(s *resourcev1.ResourceClaimStatus) int {
	if s.Allocation == nil {
		return -1
	}
	for i := range s.Allocation.Devices.Results {
		if isTrue(s.Allocation.Devices.Results[i].AdminAccess) {
			return i
		}
	}
	return -1
}

func isTrue(b *bool) bool { return b != nil && *b }

func requireAdminLabel(labels func() (map[string]string, error), path *field.Path) field.ErrorList {
	all, err := labels()
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	case all[resourcev1.DRAAdminNamespaceLabelKey] != "true":
		return field.ErrorList{field.Forbidden(path, "admin access to devices requires the `"+
			resourcev1.DRAAdminNamespaceLabelKey+": true` label on the containing namespace")}
	}
	return nil
}
