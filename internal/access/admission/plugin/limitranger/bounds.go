package limitranger

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// bound is one bound of a LimitRange for one resource, with the request and the limit of an object for this
// resource.
type bound struct {
	resource corev1.ResourceName
	// of is Container, Pod or PersistentVolumeClaim.
	of    corev1.LimitType
	value resource.Quantity
	// request and limit of the object are nil if it has none.
	request, limit *resource.Quantity
}

// faults returns an error for each request or limit that violates a bound in an item of a LimitRange.
func faults(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	return slices.Concat(
		each(item, item.Min, requests, limits, minFault),
		each(item, item.Max, requests, limits, maxFault),
		each(item, item.MaxLimitRequestRatio, requests, limits, ratioFault),
	)
}

// each calls fault for each of bounds, such as all minimums, and returns the errors in the order of the resource
// names.
func each(
	item *corev1.LimitRangeItem, bounds, requests, limits corev1.ResourceList, fault func(*bound) error,
) []error {
	if len(bounds) == 0 {
		return nil
	}
	in := func(list corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
		if q, ok := list[name]; ok {
			return &q
		}
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		b := bound{
			resource: name, of: item.Type, value: bounds[name], request: in(requests, name), limit: in(limits, name),
		}
		if err := fault(&b); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func minFault(b *bound) error {
	request, limit, least := b.comparable()
	switch {
	case b.request == nil:
		return b.outside("minimum", ".  No request is specified")
	case request < least:
		return b.outside("minimum", ", but request is "+b.request.String())
	case b.limit != nil && limit < least:
		return b.outside("minimum", ", but limit is "+b.limit.String())
	}
	return nil
}

func maxFault(b *bound) error {
	request, limit, most := b.comparable()
	switch {
	case b.limit == nil:
		return b.outside("maximum", ".  No limit is specified")
	case limit > most:
		return b.outside("maximum", ", but limit is "+b.limit.String())
	case b.request != nil && request > most:
		return b.outside("maximum", ", but request is "+b.request.String())
	}
	return nil
}

// maxRequestFault is like maxFault for PersistentVolumeClaims, whose limits do not count.
func maxRequestFault(b *bound) error {
	request, _, most := b.comparable()
	switch {
	case b.request == nil:
		return b.outside("maximum", ".  No request is specified")
	case request > most:
		return b.outside("maximum", ", but request is "+b.request.String())
	}
	return nil
}

// outside returns the error of a request or limit that is outside of a minimum or maximum.
func (b *bound) outside(side, how string) error {
	return fmt.Errorf("%s %s usage per %s is %s%s", side, b.resource, b.of, b.value.String(), how)
}

func ratioFault(b *bound) error {
	fault := func(how string) error {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but %s", b.resource, b.of, b.value.String(), how)
	}
	request, limit, _ := b.comparable()
	if b.request == nil || request == 0 {
		return fault("no request is specified or request is 0")
	}
	if b.limit == nil || limit == 0 {
		return fault("no limit is specified or limit is 0")
	}
	// The largest ratio may have three decimal places.
	ratio := float64(limit) / float64(request)
	most, scaled := float64(b.value.Value()), ratio
	if b.value.Value() <= resource.MaxMilliValue {
		most, scaled = float64(b.value.MilliValue()), ratio*1000
	}
	if scaled > most {
		return fault(fmt.Sprintf("provided ratio is %f", ratio))
	}
	return nil
}

// comparable returns the request, the limit and the bound in thousandths, or in units if one of them is too large for
// that. Smaller fractions are rounded up, as kube-apiserver does. A request or limit that the object does not have is zero.
func (b *bound) comparable() (request, limit, value int64) {
	of := [3]resource.Quantity{{}, {}, b.value}
	if b.request != nil {
		of[0] = *b.request
	}
	if b.limit != nil {
		of[1] = *b.limit
	}
	milli := true
	for i := range of {
		milli = milli && of[i].Value() <= resource.MaxMilliValue
	}
	if milli {
		return of[0].MilliValue(), of[1].MilliValue(), of[2].MilliValue()
	}
	return of[0].Value(), of[1].Value(), of[2].Value()
}
