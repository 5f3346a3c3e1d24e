package field

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Join returns the errors of all lists, nil if there are none.
func Join(lists ...ErrorList) (errs ErrorList) {
	for _, list := range lists {
		errs = append(errs, list...)
	}
	return errs
}

// Each applies a rule to each element of a list.
func Each[T any](p *Path, list []T, rule func(*T, *Path) ErrorList) (errs ErrorList) {
	for i := range list {
		errs = append(errs, rule(&list[i], p.Index(i))...)
	}
	return errs
}

// EachValue applies a rule of values to each element of a list.
func EachValue[T any](p *Path, list []T, rule func(*Path, T) ErrorList) (errs ErrorList) {
	for i, value := range list {
		errs = append(errs, rule(p.Index(i), value)...)
	}
	return errs
}

// WarnEach returns the warnings of a rule about each element of a list.
func WarnEach(p *Path, list []string, rule func(*field.Path, string) []string) (warnings []string) {
	for i, value := range list {
		warnings = append(warnings, rule(p.Index(i).K8s(), value)...)
	}
	return warnings
}

// Unique requires a value that is not in seen, and adds it.
func Unique[T comparable](seen sets.Set[T], p *Path, value T) ErrorList {
	if seen.Has(value) {
		return ErrorList{Duplicate(p, value)}
	}
	seen.Insert(value)
	return nil
}
