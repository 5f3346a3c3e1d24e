package dra

import (
	"context"
	"regexp"
	"slices"
	"unicode/utf8"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// This file and the files declared_*.go have the rules that the API types of the group declare (KEP-5073). kube-apiserver
// applies them to the object in the version of the request, and reports their errors after all others: their paths are those of
// the version. On update, a field that keeps its value is not validated again.

// declared collects the errors of declared rules. Their paths are those of v1.
type declared struct {
	update bool
	// old means v1beta1 and v1beta2. flat means v1beta1: the fields of "exactly" are in the request itself, and those of a
	// device are in "basic".
	old, flat bool
	errs      field.ErrorList
}

// newDeclared returns a collector for a create or an update.
func newDeclared(ctx context.Context, update bool) *declared {
	d := &declared{update: update}
	if info := request.InfoFrom(ctx); info != nil {
		d.flat = info.Version == "v1beta1"
		d.old = d.flat || info.Version == "v1beta2"
	}
	return d
}

// after returns errs and the errors of the declared rules.
func (d *declared) after(errs field.ErrorList) field.ErrorList {
	if d.flat {
		for _, e := range d.errs {
			e.Field = flatPath(e.Field)
		}
	}
	return append(errs, d.errs...)
}

var (
	exactField  = field.Pattern(`^((spec\.)?spec\.devices\.requests\[\d+\])\.exactly\b`)
	deviceField = field.Pattern(`^(spec\.devices\[\d+\])\.`)
)

// flatPath returns the path in v1beta1 of a field of v1.
// Examples are spec.devices.requests[0].exactly.count, which is spec.devices.requests[0].count there, and
// spec.devices[0].taints, which is spec.devices[0].basic.taints.
func flatPath(path string) string {
	for _, change := range []struct {
		from *regexp.Regexp
		to   string
	}{{exactField(), "$1"}, {deviceField(), "$1.basic."}} {
		path = change.from.ReplaceAllString(path, change.to)
	}
	return path
}

// kept reports whether an update keeps the value of a field. known is false if the field has no old value.
func (d *declared) kept(now, old any, known bool) bool {
	return d.update && known && equality.Semantic.DeepEqual(now, old)
}

// A declaredRule is a function of package validate.
type declaredRule[T any] = validate.ValidateFunc[*T]

// create is the operation for rules that do not depend on it.
var create = operation.Operation{Type: operation.Create}

// apply applies rules to a value.
// Callers have already left out values that an update keeps, so the rules see each value as new.
func apply[T any](d *declared, path *field.Path, value *T, rules ...declaredRule[T]) {
	for _, rule := range rules {
		d.errs = append(d.errs, rule(context.Background(), create, path.K8s(), value, nil)...)
	}
}

// required applies rules to a value that must not be empty.
// A number that is 0 counts as empty.
func required[T comparable](d *declared, path *field.Path, value T, rules ...declaredRule[T]) {
	var zero T
	if value == zero {
		d.errs = append(d.errs, field.Required(path, ""))
		return
	}
	apply(d, path, &value, rules...)
}

// requiredPointer applies rules to a value that must not be nil.
func requiredPointer[T any](d *declared, path *field.Path, value *T, rules ...declaredRule[T]) {
	if value == nil {
		d.errs = append(d.errs, field.Required(path, ""))
		return
	}
	apply(d, path, value, rules...)
}

// optional applies rules to a value unless it is empty.
func optional[T comparable](d *declared, path *field.Path, value T, rules ...declaredRule[T]) {
	var zero T
	if value != zero {
		apply(d, path, &value, rules...)
	}
}

// optionalPointer applies rules to a value unless it is nil.
func optionalPointer[T any](d *declared, path *field.Path, value *T, rules ...declaredRule[T]) {
	if value != nil {
		apply(d, path, value, rules...)
	}
}

// atMost reports whether a list has no more than the allowed number of items. Nothing else of a longer list is validated.
func (d *declared) atMost(most, number int, path *field.Path) bool {
	errs := field.MaxItems(path, number, most)
	d.errs = append(d.errs, errs...)
	return len(errs) == 0
}

// unique requires items that differ. The error has the whole item, as shown returns it.
func unique[T any](d *declared, path *field.Path, list []T, same func(a, b *T) bool, shown func(*T) any) {
	for i := range list {
		if slices.ContainsFunc(list[:i], func(other T) bool { return same(&other, &list[i]) }) {
			d.errs = append(d.errs, field.Duplicate(path.Index(i), shown(&list[i])))
		}
	}
}

// whole is the usual way to show an item.
func whole[T any](item *T) any { return *item }

func equal[T comparable](a, b *T) bool { return *a == *b }

// counterpart returns the first item of the old list that is the same as an item, nil if there is none.
func counterpart[T any](old []T, item *T, same func(a, b *T) bool) *T {
	for i := range old {
		if same(&old[i], item) {
			return &old[i]
		}
	}
	return nil
}

// matched calls f for the items of a list and their counterparts in the old list, except those that are kept.
func matched[T any](d *declared, path *field.Path, list, old []T, same func(a, b *T) bool, f func(item, old *T, at *field.Path)) {
	for i := range list {
		item, before := &list[i], counterpart(old, &list[i], same)
		if before == nil || !d.kept(item, before, true) {
			f(item, before, path.Index(i))
		}
	}
}

// part returns a part of an old value, and the zero value of the part if there is no old value.
func part[T, P any](old *T, of func(*T) P) (p P) {
	if old != nil {
		p = of(old)
	}
	return p
}

// The rules below are those of package validate that need an argument.

func maxLength[T ~string](most int) declaredRule[T] {
	return func(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, old *T) field.ErrorList {
		return validate.MaxLength(ctx, op, path, value, old, most)
	}
}

func maxBytes[T ~string](most int) declaredRule[T] {
	return func(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, old *T) field.ErrorList {
		return validate.MaxBytes(ctx, op, path, value, old, most)
	}
}

func atLeast[T int32 | int64](least T) declaredRule[T] {
	return func(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, old *T) field.ErrorList {
		return validate.Minimum(ctx, op, path, value, old, least)
	}
}

func atMostNumber[T int32 | int64](most T) declaredRule[T] {
	return func(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, old *T) field.ErrorList {
		return validate.Maximum(ctx, op, path, value, old, most)
	}
}

func oneOf[T ~string](values ...T) declaredRule[T] {
	return func(ctx context.Context, op operation.Operation, path *k8sfield.Path, value, old *T) field.ErrorList {
		return validate.Enum(ctx, op, path, value, old, sets.New(values...), nil)
	}
}

// driver applies the rules of the name of a driver.
func (d *declared) driver(name string, path *field.Path) {
	required(d, path, name, validate.LongNameCaseless[string], maxLength[string](resourcev1.DriverNameMaxLength))
}

// validateLongDriver returns the error of the name of a driver that has too many bytes, but not too many characters, which a
// declared rule limits.
func validateLongDriver(path *field.Path, name string) field.ErrorList {
	if utf8.RuneCountInString(name) > resourcev1.DriverNameMaxLength {
		return nil
	}
	return field.MaxLength(path, name, resourcev1.DriverNameMaxLength)
}
