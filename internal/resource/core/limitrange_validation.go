package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func validateLimitRange(r *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.LimitType]()
	for i := range r.Spec.Limits {
		item, path := &r.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(item.Type, path.Child("type"))...)
		errs = append(errs, field.Unique(seen, path.Child("type"), item.Type)...)
		errs = append(errs, validateLimitRangeItem(item, path)...)
	}
	return errs
}

// validateLimitType accepts the types of Kubernetes, and qualified names.
func validateLimitType(t corev1.LimitType, path *field.Path) field.ErrorList {
	errs := field.LabelKey(path, t)
	switch {
	case len(errs) > 0 || strings.Contains(string(t), "/"):
	case t != corev1.LimitTypePod && t != corev1.LimitTypeContainer && t != corev1.LimitTypePersistentVolumeClaim:
		errs = append(errs, field.Invalid(path, t, "must be a standard limit type or fully qualified"))
	}
	return errs
}

func validateLimitRangeItem(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	named := corev1.ResourceList{}
	add := func(member string, list corev1.ResourceList) {
		errs = append(errs, validateLimitNames(item.Type, list, path.Child(member))...)
		for name := range list {
			named[name] = resource.Quantity{}
		}
	}
	add("max", item.Max)
	add("min", item.Min)
	// The defaults of a pod are forbidden as a whole, so their values are not compared.
	checked := *item
	if item.Type == corev1.LimitTypePod {
		errs = append(errs, forbiddenDefaults(item, path)...)
		checked.Default, checked.DefaultRequest = nil, nil
	} else {
		add("default", item.Default)
		add("defaultRequest", item.DefaultRequest)
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		_, most := item.Max[corev1.ResourceStorage]
		errs = append(errs, field.RequiredIf(!least && !most, path.Child("limits"),
			"either minimum or maximum storage value is required, but neither was provided")...)
	}
	add("maxLimitRequestRatio", item.MaxLimitRequestRatio)
	for _, name := range sortedKeys(named) {
		errs = append(errs, validateLimitOrder(&checked, name, path)...)
		errs = append(errs, validateLimitRatio(&checked, name, path.Child("maxLimitRequestRatio").Key(string(name)))...)
	}
	return errs
}

// validateLimitNames checks the names of resources. Pods and containers have other ones than claims.
func validateLimitNames(t corev1.LimitType, list corev1.ResourceList, path *field.Path) field.ErrorList {
	validate := ValidateResourceName
	if t == corev1.LimitTypePod || t == corev1.LimitTypeContainer {
		validate = ValidateContainerResourceName
	}
	var errs field.ErrorList
	for _, name := range sortedKeys(list) {
		errs = append(errs, validate(string(name), path.Key(string(name)))...)
	}
	return errs
}

// forbiddenDefaults returns errors for defaults of the type Pod: the admission plug-in LimitRanger sets
// defaults in containers.
func forbiddenDefaults(item *corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	const detail = "may not be specified when `type` is 'Pod'"
	errs := field.ForbiddenIf(len(item.Default) > 0, path.Child("default"), detail)
	return append(errs, field.ForbiddenIf(len(item.DefaultRequest) > 0, path.Child("defaultRequest"), detail)...)
}

// validateLimitOrder checks that the values for one resource are in order: the minimum, the default request, the default
// limit and the maximum.
func validateLimitOrder(item *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) field.ErrorList {
	type value struct {
		name string
		list corev1.ResourceList
	}
	least, most := value{"min", item.Min}, value{"max", item.Max}
	limit, request := value{"default", item.Default}, value{"default request", item.DefaultRequest}
	var errs field.ErrorList
	// check adds an error at a member, which shows the value of shown, if low is larger than high.
	check := func(low, high, shown value, member, as string) {
		a, hasLow := low.list[name]
		b, hasHigh := high.list[name]
		if hasLow && hasHigh && a.Cmp(b) > 0 {
			q := shown.list[name]
			errs = append(errs, field.Invalid(path.Child(member).Key(string(name)), q.String(),
				fmt.Sprintf("%s value %s is greater than %s value %s", low.name, a.String(), as, b.String())))
		}
	}
	check(least, most, least, "min", "max")
	check(least, request, request, "defaultRequest", "default request")
	check(request, most, request, "defaultRequest", "max")
	check(request, limit, request, "defaultRequest", "default limit")
	check(least, limit, least, "default", "default")
	check(limit, most, most, "default", "max")
	// A request of huge pages or of an extended resource must equal its limit, so the defaults must too.
	a, hasLimit := item.Default[name]
	b, hasRequest := item.DefaultRequest[name]
	if hasLimit && hasRequest && !overcommitAllowed(name) && a.Cmp(b) != 0 {
		errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(name)), b.String(),
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", a.String(), b.String(), name)))
	}
	return errs
}

// validateLimitRatio requires that maxLimitRequestRatio is at least 1. Where max and min are set, it must not be larger than
// max divided by min.
func validateLimitRatio(item *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) field.ErrorList {
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(path, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	least, hasLeast := item.Min[name]
	most, hasMost := item.Max[name]
	if !hasLeast || !hasMost {
		return errs
	}
	// Thousandths are exact, but overflow for large quantities, such as sizes in bytes. Whole numbers, rounded
	// up, are used for these. A minimum of 0 gives an infinite bound, which no ratio exceeds.
	value, low, high := float64(ratio.Value()), least.Value(), most.Value()
	if ratio.Value() < resource.MaxMilliValue && low < resource.MaxMilliValue && high < resource.MaxMilliValue {
		value, low, high = float64(ratio.MilliValue())/1000, least.MilliValue(), most.MilliValue()
	}
	if bound := float64(high) / float64(low); value > bound {
		errs = append(errs, field.Invalid(path, ratio.String(),
			fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), bound)))
	}
	return errs
}
