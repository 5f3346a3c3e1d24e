package dra

import (
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// claimValidation validates the spec of one claim or template.
type claimValidation struct {
	expressions *expressions
	sharing     bool // the gate DRAConsumableCapacity
	// names are the names of the requests, and REQUEST/SUBREQUEST for those of their alternatives.
	names map[string]bool
	// used are the attributes in constraints by the name of the request that they apply to; "" is all requests.
	used map[string][]resourcev1.FullyQualifiedName
}

// validateClaimSpec validates the spec of a new claim or template.
func validateClaimSpec(s *resourcev1.ResourceClaimSpec, gates features.Gates, path *field.Path) field.ErrorList {
	c, at := &s.Devices, path.Child("devices")
	v := &claimValidation{
		expressions: newExpressions(gates), sharing: gates.Enabled(features.DRAConsumableCapacity),
		names: requestNames(c.Requests), used: constraintAttributes(c.Constraints),
	}
	errs := validateItems(c.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), v.validateRequest)
	errs = append(errs, validateItems(c.Constraints, resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"),
		v.validateConstraint)...)
	errs = append(errs, validateItems(c.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c *resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
			errs := v.validateReferences(c.Requests, at.Child("requests"))
			return append(errs, validateConfiguration(&c.DeviceConfiguration, resourcev1.OpaqueParametersMaxLength, at)...)
		})...)
	return append(errs, field.ForbiddenIf(v.expressions.derivedTooComplex(), at,
		"too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit")...)
}

// constraintAttributes returns the attributes in constraints by the name of the request that they apply to.
func constraintAttributes(constraints []resourcev1.DeviceConstraint) map[string][]resourcev1.FullyQualifiedName {
	all := map[string][]resourcev1.FullyQualifiedName{}
	for i := range constraints {
		c := &constraints[i]
		name := c.MatchAttribute
		if name == nil {
			name = c.DistinctAttribute
		}
		if name == nil {
			continue
		}
		requests := c.Requests
		if len(requests) == 0 {
			requests = []string{""}
		}
		for _, r := range requests {
			all[r] = append(all[r], *name)
		}
	}
	return all
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
	return validateItems(list, resourcev1.DeviceRequestsMaxSize, path, func(name *string, at *field.Path) field.ErrorList {
		return v.validateReference(*name, at)
	})
}

// validateReference validates a reference to a request or to one of its alternatives.
// Examples are gpu and gpu/large. The name of a request stands for all of its alternatives.
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
		// The class name of an alternative is validated by declared rules.
		errs = append(errs, field.NotEmptyAnd(path.Child("exactly", "deviceClassName"), e.DeviceClassName, field.DNSSubdomain)...)
		return append(errs, v.validateDevices(
			&devices{e.Selectors, e.AllocationMode, e.Count, e.Tolerations, e.DerivedAttributes},
			r.Name, path.Child("exactly"))...)
	}
	return append(errs, validateItems(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize,
		path.Child("firstAvailable"), func(s *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
			return v.validateSubrequest(s, r.Name+"/"+s.Name, at)
		})...)
}

// validateSubrequest validates an alternative of a request; name is REQUEST/SUBREQUEST.
func (v *claimValidation) validateSubrequest(s *resourcev1.DeviceSubRequest, name string, path *field.Path) field.ErrorList {
	errs := field.DNSLabel(path.Child("name"), s.Name)
	return append(errs, v.validateDevices(
		&devices{s.Selectors, s.AllocationMode, s.Count, s.Tolerations, s.DerivedAttributes}, name, path)...)
}

// devices is what requests and their alternatives both have.
type devices struct {
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
	derived     []resourcev1.DeviceDerivedAttribute
}

// validateDevices validates what a request asks for; name is its name.
func (v *claimValidation) validateDevices(d *devices, name string, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, v.expressions.validateSelectors(d.selectors, path.Child("selectors"))...)
	// A declared rule limits the number of derived attributes.
	errs = append(errs, validateList(d.derived, math.MaxInt, path.Child("derivedAttributes"),
		func(a *resourcev1.DeviceDerivedAttribute) resourcev1.FullyQualifiedName { return a.Name },
		func(a *resourcev1.DeviceDerivedAttribute, at *field.Path) field.ErrorList {
			return v.validateDerived(a, name, at)
		})...)
	errs = append(errs, validateCount(d.mode, d.count, path)...)
	return append(errs, field.Each(path.Child("tolerations"), d.tolerations, validateToleration)...)
}

// validateDerived validates an attribute that the request of that name derives.
// Only constraints read derived attributes, so one that no constraint names would have no effect.
func (v *claimValidation) validateDerived(
	a *resourcev1.DeviceDerivedAttribute, request string, path *field.Path,
) (errs field.ErrorList) {
	used := slices.Contains(v.used[""], a.Name) || slices.Contains(v.used[request], a.Name)
	// A constraint on a request also applies to its alternatives.
	if parent, _, sub := strings.Cut(request, "/"); sub {
		used = used || slices.Contains(v.used[parent], a.Name)
	}
	errs = append(errs, field.InvalidIf(a.Name != "" && !used, path.Child("name"), a.Name,
		"must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request")...)
	if a.Expression != "" {
		errs = append(errs, v.expressions.validateDerived(a.Expression, path.Child("expression"))...)
	}
	return errs
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
	if mode != "" { // a declared rule reports it
		return nil
	}
	return field.OneOf(path.Child("allocationMode"), mode, resourcev1.DeviceAllocationModeAll,
		resourcev1.DeviceAllocationModeExactCount)
}

// validateConstraint validates what the devices of some requests have in common, or must not have.
func (v *claimValidation) validateConstraint(c *resourcev1.DeviceConstraint, path *field.Path) field.ErrorList {
	errs := v.validateReferences(c.Requests, path.Child("requests"))
	switch {
	case c.MatchAttribute != nil || c.DistinctAttribute != nil:
	case !v.sharing:
		errs = append(errs, field.Required(path.Child("matchAttribute"), ""))
	default:
		// kube-apiserver says this of a constraint that has neither.
		errs = append(errs, field.Required(path,
			`exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
	}
	return errs
}
