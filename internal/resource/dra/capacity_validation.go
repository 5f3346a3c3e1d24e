package dra

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// maxValidValues is how many values a policy may allow.
// The documentation of the field has this limit.
const maxValidValues = 10

// policies validates how much of the capacities of a device may be requested. fractional reports whether the gate
// DRAFractionalCapacityRange is on: then all calculations are exact to a thousandth; otherwise to one.
type policies struct{ fractional bool }

func (p policies) validateCapacities(d *resourcev1.Device, path *field.Path) (errs field.ErrorList) {
	for _, name := range sortedKeys(d.Capacity) {
		c, at := d.Capacity[name], path.Key(shortened(string(name), maxAttributeKey)).Child("requestPolicy")
		errs = append(errs, validateAttributeName(name, path)...)
		switch {
		case c.RequestPolicy == nil:
		// Without this field, a claim gets the whole device and cannot request a part of its capacity.
		case !isTrue(d.AllowMultipleAllocations):
			errs = append(errs, field.Forbidden(at, "allowMultipleAllocations must be true"))
		default:
			errs = append(errs, p.validate(c.RequestPolicy, c.Value, at)...)
		}
	}
	return errs
}

// validate validates how much of a capacity may be requested: some values, or the values in a range.
// A policy with neither allows any amount up to the capacity. default is what a request consumes that names no
// amount.
func (p policies) validate(
	policy *resourcev1.CapacityRequestPolicy, capacity resource.Quantity, path *field.Path,
) field.ErrorList {
	at := path.Child("default")
	switch {
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path,
			`exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(policy.ValidValues) > 0:
		if policy.Default == nil {
			return field.ErrorList{field.Required(at, "required when validValues is defined")}
		}
		return p.validateValues(policy, capacity, path.Child("validValues"))
	case policy.ValidRange != nil:
		if policy.Default == nil {
			return field.ErrorList{field.Required(at, "required when validRange is defined")}
		}
		return p.validateRange(policy.Default, policy.ValidRange, capacity, path.Child("validRange"))
	}
	return nil
}

// validateValues validates a policy with values and a default.
// The default is one of the values. The scheduler rounds a request up to the next value, so the values have to be
// sorted.
func (p policies) validateValues(
	policy *resourcev1.CapacityRequestPolicy, capacity resource.Quantity, path *field.Path,
) (errs field.ErrorList) {
	values, found := policy.ValidValues, false
	for i := range values {
		if i > 0 && values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	errs = append(errs, validateList(values, maxValidValues, path, p.key, func(v *resource.Quantity, at *field.Path) field.ErrorList {
		found = found || v.Cmp(*policy.Default) == 0
		return field.InvalidIf(v.Cmp(capacity) > 0, at, v.String(), "option is larger than capacity value: "+capacity.String())
	})...)
	return append(errs, field.InvalidIf(!found, path, policy.Default.String(),
		"default value is not valid according to the requestPolicy")...)
}

// key returns a text that is the same for equal values.
// For example, 1Gi and 1024Mi are equal. Without the gate, values are rounded up to integers, so 1500m repeats 2.
func (p policies) key(v *resource.Quantity) string {
	if p.fractional {
		return exact(v).AsDec().String()
	}
	return strconv.FormatInt(v.Value(), 10)
}

// exact returns a copy of a quantity, for a call of AsDec, which changes its receiver.
func exact(v *resource.Quantity) *resource.Quantity {
	c := v.DeepCopy()
	return &c
}

// bound is a value of a range, nil if it is not set, and its name.
type bound struct {
	name  string
	value *resource.Quantity
}

// validateRange requires min <= default <= max <= capacity. Without a max, it does not compare the default with
// the capacity. The error about min > max has the path of max and the value of min, as in kube-apiserver.
func (p policies) validateRange(
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
		reject("default", standard, "default is less than min: ", r.Min)
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			reject("max", r.Min, "min is larger than max: ", r.Max)
		}
		if r.Max.Cmp(capacity) > 0 {
			reject("max", r.Max, "max is larger than capacity value: ", &capacity)
		}
		if standard.Cmp(*r.Max) > 0 {
			reject("default", standard, "default is more than max: ", r.Max)
		}
	}
	return append(errs, p.validateSteps(
		[]bound{{"default", standard}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}}, capacity, path)...)
}

// validateSteps validates that the values of a range are a number of steps from its minimum. bounds are the default, the
// minimum, the maximum and the step.
// For example, with min 1Gi and step 2Gi, the default 3Gi is valid and 2Gi is not. min plus one step must not be
// more than the capacity, because no step would fit.
func (p policies) validateSteps(bounds []bound, capacity resource.Quantity, path *field.Path) (errs field.ErrorList) {
	standard, least, most, step := bounds[0].value, bounds[1].value, bounds[2].value, bounds[3].value
	number := (*resource.Quantity).Value
	milli := p.fractional && anyFractional(bounds)
	if milli {
		number = (*resource.Quantity).MilliValue
		if errs := eachBound(bounds, path, validateMilli); len(errs) > 0 {
			return errs
		}
	}
	switch {
	case step == nil:
		return nil
	case step.Sign() <= 0:
		return field.ErrorList{field.Invalid(path.Child("step"), step.String(), "must be greater than zero")}
	}
	at := path.Child("step")
	one := least.DeepCopy()
	one.Add(*step)
	if one.Cmp(capacity) > 0 {
		errs = append(errs, field.Invalid(at, step.String(),
			fmt.Sprintf("one step %s is larger than capacity value: %s", one.String(), capacity.String())))
	}
	if !milli {
		if unsafe := eachBound(bounds, path, validateInt64); len(unsafe) > 0 {
			return append(errs, unsafe...)
		}
	}
	for _, v := range []*resource.Quantity{standard, most} {
		if v != nil && (number(v)-number(least))%number(step) != 0 {
			errs = append(errs, field.Invalid(at, v.String(), fmt.Sprintf(
				"value is not a multiple of a given step (%s) from (%s)", step.String(), least.String())))
		}
	}
	return errs
}

// eachBound applies a rule to the values that are set.
func eachBound(
	bounds []bound, path *field.Path, rule func(*field.Path, *resource.Quantity) field.ErrorList,
) (errs field.ErrorList) {
	for _, b := range bounds {
		if b.value != nil {
			errs = append(errs, rule(path.Child(b.name), b.value)...)
		}
	}
	return errs
}

// validateMilli requires a value with at most three decimal places, of less than 2⁶³ thousandths, so that an int64
// can hold the thousandths.
func validateMilli(path *field.Path, v *resource.Quantity) field.ErrorList {
	return field.InvalidIf(v.Cmp(*resource.NewMilliQuantity(v.MilliValue(), v.Format)) != 0, path, v.String(),
		"value cannot be represented as a milli value")
}

// validateInt64 requires a value from 0 to 2⁶³-1. For a whole number in this range, Quantity.Value returns the exact
// value.
func validateInt64(path *field.Path, v *resource.Quantity) field.ErrorList {
	if v.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, v.String(), "must be greater than or equal to 0")}
	}
	return field.InvalidIf(v.CmpInt64(math.MaxInt64) > 0, path, v.String(), "must not be larger than 9223372036854775807")
}

// anyFractional reports whether one of the values is not a whole number.
func anyFractional(bounds []bound) bool {
	for _, b := range bounds {
		if b.value == nil {
			continue
		}
		v := exact(b.value).AsDec()
		if v.Scale() <= 0 {
			continue
		}
		one := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Scale())), nil)
		if one.Rem(v.UnscaledBig(), one).Sign() != 0 {
			return true
		}
	}
	return false
}
