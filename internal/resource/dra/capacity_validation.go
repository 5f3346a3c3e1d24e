package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// maxValidValues is how many values a policy may allow.
const maxValidValues = 10

func validateCapacities(d *resourcev1.Device, path *field.Path) (errs field.ErrorList) {
	shared := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	for _, name := range sortedKeys(d.Capacity) {
		c, at := d.Capacity[name], path.Key(string(name)).Child("requestPolicy")
		errs = append(errs, validateAttributeName(name, path)...)
		switch {
		case c.RequestPolicy == nil:
		case !shared:
			errs = append(errs, field.Forbidden(at, "allowMultipleAllocations must be true"))
		default:
			errs = append(errs, validatePolicy(c.RequestPolicy, c.Value, at)...)
		}
	}
	return errs
}

// validatePolicy validates how much of a capacity may be requested: some values, or the values in a range.
func validatePolicy(p *resourcev1.CapacityRequestPolicy, capacity resource.Quantity, path *field.Path) field.ErrorList {
	at := path.Child("default")
	switch {
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path,
			`exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0:
		if p.Default == nil {
			return field.ErrorList{field.Required(at, "required when validValues is defined")}
		}
		return validateValues(p, capacity, path.Child("validValues"))
	case p.ValidRange != nil:
		if p.Default == nil {
			return field.ErrorList{field.Required(at, "required when validRange is defined")}
		}
		return validateRange(p.Default, p.ValidRange, capacity, path.Child("validRange"))
	}
	return nil
}

// validateValues validates a policy with values and a default.
func validateValues(
	p *resourcev1.CapacityRequestPolicy, capacity resource.Quantity, path *field.Path,
) field.ErrorList {
	errs := field.MaxItems(path, len(p.ValidValues), maxValidValues)
	values := p.ValidValues
	if len(errs) > 0 {
		values = nil // of a list that is too long, no value counts
	}
	found := false
	for i := range values {
		v, at := &values[i], path.Index(i)
		found = found || v.Cmp(*p.Default) == 0
		if i > 0 {
			switch v.Cmp(values[i-1]) {
			case 0:
				errs = append(errs, field.Duplicate(at, v.String()))
			case -1:
				errs = append(errs, field.Invalid(at, v.String(), "values must be sorted in ascending order"))
			}
		}
		if v.Cmp(capacity) > 0 {
			errs = append(errs, field.Invalid(at, v.String(), "option is larger than capacity value: "+capacity.String()))
		}
	}
	if !found {
		errs = append(errs,
			field.Invalid(path, p.Default.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

func validateRange(
	standard *resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, capacity resource.Quantity, path *field.Path,
) (errs field.ErrorList) {
	reject := func(name string, value *resource.Quantity, why string, limit *resource.Quantity) {
		errs = append(errs, field.Invalid(path.Child(name), value.String(), why+limit.String()))
	}
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "required when validRange is defined")}
	}
	if r.Min.Cmp(capacity) > 0 {
		reject("min", r.Min, "min is larger than capacity value: ", &capacity)
	}
	if standard.Cmp(*r.Min) < 0 {
		reject("min", standard, "default is less than min: ", r.Min)
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			reject("max", r.Min, "min is larger than max: ", r.Max)
		}
		if r.Max.Cmp(capacity) > 0 {
			reject("max", r.Max, "max is larger than capacity value: ", &capacity)
		}
		if standard.Cmp(*r.Max) > 0 {
			reject("max", standard, "default is more than max: ", r.Max)
		}
	}
	if r.Step != nil {
		errs = append(errs, validateStep(standard, r, capacity, path.Child("step"))...)
	}
	return errs
}

// validateStep validates that the values of a range are a number of steps from its minimum. kube-apiserver divides by a
// step of zero; here such a step is an error.
func validateStep(
	standard *resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, capacity resource.Quantity, path *field.Path,
) (errs field.ErrorList) {
	if r.Step.Sign() == 0 {
		return field.ErrorList{field.Invalid(path, r.Step.String(), "must not be zero")}
	}
	one := r.Min.DeepCopy()
	one.Add(*r.Step)
	if one.Cmp(capacity) > 0 {
		errs = append(errs, field.Invalid(path, r.Step.String(),
			fmt.Sprintf("one step %s is larger than capacity value: %s", one.String(), capacity.String())))
	}
	for _, v := range []*resource.Quantity{standard, r.Max} {
		if v != nil && (v.Value()-r.Min.Value())%r.Step.Value() != 0 {
			errs = append(errs, field.Invalid(path, v.String(), fmt.Sprintf(
				"value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	return errs
}
