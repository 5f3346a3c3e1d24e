package dra

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// claimValidation validates the spec of one claim or template.
type claimValidation struct {
	selectors selectors
	// names are the names of the requests, and REQUEST/SUBREQUEST for those of their alternatives.
	names map[string]bool
}

// validateClaimSpec validates the spec of a claim or a template. origin says where its expressions come from.
func validateClaimSpec(s *resourcev1.ResourceClaimSpec, origin cel.Origin, path *field.Path) field.ErrorList {
	d, at := &s.Devices, path.Child("devices")
	v := &claimValidation{selectors: selectors{origin: origin}, names: requestNames(d.Requests)}
	errs := validateList(d.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"),
		func(r *resourcev1.DeviceRequest) string { return r.Name }, v.validateRequest)
	constraints, configs := at.Child("constraints"), at.Child("config")
	errs = append(errs, field.MaxItems(constraints, len(d.Constraints), resourcev1.DeviceConstraintsMaxSize)...)
	errs = append(errs, field.Each(constraints, d.Constraints, v.validateConstraint)...)
	errs = append(errs, field.MaxItems(configs, len(d.Config), resourcev1.DeviceConfigMaxSize)...)
	for i := range d.Config {
		c := &d.Config[i]
		errs = append(errs, v.validateReferences(c.Requests, configs.Index(i).Child("requests"))...)
		errs = append(errs, validateConfiguration(&c.DeviceConfiguration, configs.Index(i))...)
	}
	return errs
}

func requestNames(requests []resourcev1.DeviceRequest) map[string]bool {
	all := make(map[string]bool, len(requests))
	for i := range requests {
		r := &requests[i]
		all[r.Name] = true
		for k := range r.FirstAvailable {
			all[r.Name+"/"+r.FirstAvailable[k].Name] = true
		}
	}
	return all
}

// validateReferences validates a list of requests to which something applies.
func (v *claimValidation) validateReferences(list []string, path *field.Path) field.ErrorList {
	return validateList(list, resourcev1.DeviceRequestsMaxSize, path, itself, func(name *string, at *field.Path) field.ErrorList {
		return v.validateReference(*name, at)
	})
}

// validateReference validates a reference to a request or to one of its alternatives.
func (v *claimValidation) validateReference(name string, path *field.Path) (errs field.ErrorList) {
	if parts := strings.Split(name, "/"); len(parts) <= 2 {
		for _, part := range parts {
			errs = append(errs, field.DNSLabel(path, part)...)
		}
	}
	return append(errs, field.InvalidIf(!v.names[name], path, name,
		"must be the name of a request in the claim or the name of a request and a subrequest separated by '/'")...)
}

func (v *claimValidation) validateRequest(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	errs := field.DNSLabel(path.Child("name"), r.Name)
	const one = "exactly one of `exactly` or `firstAvailable` is required"
	switch e := r.Exactly; {
	case e == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(path, one))
	case e != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(path, nil, one+", but multiple fields are set"))
	case e != nil:
		return append(errs, v.validateDevices(
			&devices{e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations}, path.Child("exactly"))...)
	}
	return append(errs, validateList(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize,
		path.Child("firstAvailable"), func(s *resourcev1.DeviceSubRequest) string { return s.Name }, v.validateSubrequest)...)
}

func (v *claimValidation) validateSubrequest(s *resourcev1.DeviceSubRequest, path *field.Path) field.ErrorList {
	errs := field.DNSLabel(path.Child("name"), s.Name)
	return append(errs, v.validateDevices(
		&devices{s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations}, path)...)
}

// devices is what requests and their alternatives both have.
type devices struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

func (v *claimValidation) validateDevices(d *devices, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.NotEmptyAnd(path.Child("deviceClassName"), d.class, field.DNSSubdomain)...)
	errs = append(errs, v.selectors.validate(d.selectors, path.Child("selectors"))...)
	errs = append(errs, validateCount(d.mode, d.count, path)...)
	return append(errs, validateTolerations(d.tolerations, path.Child("tolerations"))...)
}

// validateCount validates how many devices are wanted.
func validateCount(mode resourcev1.DeviceAllocationMode, count int64, path *field.Path) field.ErrorList {
	at := path.Child("count")
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		return field.InvalidIf(count != 0, at, count, "must not be specified when allocationMode is 'All'")
	case resourcev1.DeviceAllocationModeExactCount:
		return field.InvalidIf(count <= 0, at, count, "must be greater than zero")
	}
	return field.OneOf(path.Child("allocationMode"), mode, resourcev1.DeviceAllocationModeAll,
		resourcev1.DeviceAllocationModeExactCount)
}

// validateConstraint validates what the devices of some requests have in common, or must not have.
func (v *claimValidation) validateConstraint(c *resourcev1.DeviceConstraint, path *field.Path) field.ErrorList {
	errs := v.validateReferences(c.Requests, path.Child("requests"))
	switch {
	case c.MatchAttribute != nil:
		errs = append(errs, validateFullName(*c.MatchAttribute, path.Child("matchAttribute"))...)
	case c.DistinctAttribute != nil:
		errs = append(errs, validateFullName(*c.DistinctAttribute, path.Child("distinctAttribute"))...)
	default:
		// kube-apiserver says this of a constraint that has neither.
		errs = append(errs, field.Required(path,
			`exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
	}
	return errs
}
