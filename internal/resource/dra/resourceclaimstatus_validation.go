package dra

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateClaimStatus validates an update of the status of a claim.
func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path, s := field.NewPath("status"), &c.Status
	errs := validateReservations(c, old, path.Child("reservedFor"))
	switch at := path.Child("allocation"); {
	case s.Allocation == nil:
	case old.Status.Allocation != nil:
		errs = append(errs, declare.Immutable(s.Allocation, old.Status.Allocation, at)...)
	default:
		errs = append(errs, validateAllocation(s.Allocation, requestNames(c.Spec.Devices.Requests), at)...)
	}
	return append(errs, validateDeviceStatuses(s, path.Child("devices"))...)
}

// validateReservations validates who uses the claim.
func validateReservations(c, old *resourcev1.ResourceClaim, path *field.Path) field.ErrorList {
	users := c.Status.ReservedFor
	errs := validateList(users, resourcev1.ResourceClaimReservedForMaxSize, path,
		func(r *resourcev1.ResourceClaimConsumerReference) string { return string(r.UID) }, validateConsumer)
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

func validateAllocation(a *resourcev1.AllocationResult, requests map[string]bool, path *field.Path) field.ErrorList {
	v := &claimValidation{names: requests}
	at := path.Child("devices")
	results, configs := at.Child("results"), at.Child("config")
	errs := field.MaxItems(results, len(a.Devices.Results), resourcev1.AllocationResultsMaxSize)
	errs = append(errs, field.Each(results, a.Devices.Results, v.validateResult)...)
	errs = append(errs, field.MaxItems(configs, len(a.Devices.Config), 2*resourcev1.DeviceConfigMaxSize)...)
	for i := range a.Devices.Config {
		c, at := &a.Devices.Config[i], configs.Index(i)
		errs = append(errs, field.RequiredOneOf(at.Child("source"), c.Source, resourcev1.AllocationConfigSourceClaim,
			resourcev1.AllocationConfigSourceClass)...)
		errs = append(errs, v.validateReferences(c.Requests, at.Child("requests"))...)
		errs = append(errs, validateConfiguration(&c.DeviceConfiguration, at)...)
	}
	if a.NodeSelector != nil {
		errs = append(errs, core.ValidateNodeSelector(a.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, core.ValidateNodeSelectorValues(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

// validateResult validates a device that is allocated for a request.
func (v *claimValidation) validateResult(r *resourcev1.DeviceRequestAllocationResult, path *field.Path) field.ErrorList {
	errs := v.validateReference(r.Request, path.Child("request"))
	errs = append(errs, validateDeviceKey(r.Driver, r.Pool, r.Device, path)...)
	errs = append(errs, validateBindingConditions(r.BindingConditions, r.BindingFailureConditions, path)...)
	return append(errs, field.Optional(path.Child("shareID"), (*string)(r.ShareID), validateShareID)...)
}

func validateDeviceKey(driver, pool, device string, path *field.Path) field.ErrorList {
	errs := validateDriver(path.Child("driver"), driver)
	errs = append(errs, validatePool(path.Child("pool"), pool)...)
	return append(errs, field.DNSLabel(path.Child("device"), device)...)
}

// uuidForm is the normalized form of a UUID.
var uuidForm = field.Pattern(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// validateShareID validates a UUID, which has to be in its normalized form. The other forms have an error of their own.
func validateShareID(path *field.Path, id string) field.ErrorList {
	plain, why := strings.ToLower(id), ""
	switch len(id) {
	case len("urn:uuid:") + 36:
		plain = strings.TrimPrefix(plain, "urn:uuid:")
	case len("{}") + 36:
		plain = strings.TrimSuffix(strings.TrimPrefix(plain, "{"), "}")
	case 32:
		plain = strings.Join([]string{plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]}, "-")
	case 36:
	default:
		why = fmt.Sprintf("error validating uid: invalid UUID length: %d", len(id))
	}
	switch {
	case uuidForm().MatchString(id):
		return nil
	case why == "" && uuidForm().MatchString(plain):
		why = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase " +
			"hexadecimal characters"
	case why == "":
		why = "error validating uid: invalid UUID format"
	}
	return field.ErrorList{field.Invalid(path, id, why)}
}

// deviceKey identifies an allocated device. It has the fields that kube-apiserver shows in errors.
type deviceKey struct{ Driver, Pool, Device, ShareID string }

func validateDeviceStatuses(s *resourcev1.ResourceClaimStatus, path *field.Path) (errs field.ErrorList) {
	allocated := map[deviceKey]bool{}
	if s.Allocation != nil {
		for i := range s.Allocation.Devices.Results {
			r := &s.Allocation.Devices.Results[i]
			allocated[deviceKey{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}] = true
		}
	}
	seen := sets.New[deviceKey]()
	for i := range s.Devices {
		d, at := &s.Devices[i], path.Index(i)
		key := deviceKey{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
		errs = append(errs, field.Optional(at.Child("shareID"), d.ShareID, validateShareID)...)
		errs = append(errs, validateDeviceStatus(d, at)...)
		errs = append(errs, field.InvalidIf(!allocated[key], at, key, "must be an allocated device in the claim")...)
		errs = append(errs, field.Unique(seen, at, key)...)
	}
	return errs
}

func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, path *field.Path) field.ErrorList {
	errs := validateDeviceKey(d.Driver, d.Pool, d.Device, path)
	at := path.Child("conditions")
	errs = append(errs, field.MaxItems(at, len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions)...)
	errs = append(errs, metav1validation.ValidateConditions(d.Conditions, at.K8s())...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateData(d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))...)
	}
	return append(errs, field.IfPresent(path.Child("networkData"), d.NetworkData, validateNetworkData)...)
}

func validateNetworkData(n *resourcev1.NetworkDeviceData, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.MaxLength(path.Child("interfaceName"), n.InterfaceName,
		resourcev1.NetworkDeviceDataInterfaceNameMaxLength)...)
	errs = append(errs, field.MaxLength(path.Child("hardwareAddress"), n.HardwareAddress,
		resourcev1.NetworkDeviceDataHardwareAddressMaxLength)...)
	return append(errs, validateList(n.IPs, resourcev1.NetworkDeviceDataMaxIPs, path.Child("ips"), itself,
		func(ip *string, at *field.Path) field.ErrorList {
			return validation.IsValidInterfaceAddress(at.K8s(), *ip)
		})...)
}
