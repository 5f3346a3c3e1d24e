package declare

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Rules collects the errors of rules that kube-apiserver declares in the API types of newer kinds. They compare the fields
// of an update with those of the old object: what has not changed is not validated again. Every rule reports whether it
// found an error, so that a caller can leave out the rules after it.
type Rules struct {
	Errs field.ErrorList
}

// Rule is a rule of package validate of apimachinery. It gets no old value.
type Rule[T any] = func(context.Context, operation.Operation, *field.Path, *T, *T) field.ErrorList

// Changed reports whether a value has to be validated. existed says whether there is an old value: there is none for a new
// object or a new element of a list.
// nil and an empty list are equal. Only values that have changed are validated, so a stored value that breaks a
// newer rule does not block updates of other fields.
func Changed[T any](existed bool, value, old T) bool {
	return !existed || !equality.Semantic.DeepEqual(value, old)
}

// Add adds errors.
// It reports whether there were any.
func (r *Rules) Add(errs ...*field.Error) bool {
	r.Errs = append(r.Errs, errs...)
	return len(errs) > 0
}

// Fixed adds an error for a field that is immutable. The caller has found that the field has changed. existed is
// false for a new object or a new element of a list, which may have any value.
func (r *Rules) Fixed(existed bool, path *field.Path) bool {
	return existed && r.Add(field.Invalid(path, nil, "field is immutable"))
}

// Kept refuses to remove a value that is set, and to set one later if may is false.
func (r *Rules) Kept(was, is, may bool, path *field.Path) bool {
	switch {
	case was && !is:
		return r.Add(field.Invalid(path, nil, "field cannot be cleared once set"))
	case is && !was && !may:
		return r.Add(field.Invalid(path, nil, "field cannot be set once created"))
	}
	return false
}

// Unmodified adds an error if a field that was set is removed, or gets another value. was and is say whether the
// field was set and is set, changed whether its value differs.
func (r *Rules) Unmodified(was, is, changed bool, path *field.Path) bool {
	if r.Kept(was, is, true, path) {
		return true
	}
	return was && changed && r.Add(field.Invalid(path, nil, "field cannot be modified once set"))
}

// Forbidden refuses a field that is set although its gate is off.
func (r *Rules) Forbidden(set bool, path *field.Path) bool {
	return set && r.Add(field.Forbidden(path, ""))
}

// Required refuses a field that is missing.
func (r *Rules) Required(missing bool, path *field.Path) bool {
	return missing && r.Add(field.Required(path, ""))
}

// OneOf requires that one of the members is set. set and old are in the order of the members; old is nil if there is no old
// value. A change that leaves the same members set is not refused.
func (r *Rules) OneOf(path *field.Path, set, old []bool, members ...string) bool {
	union := make([]validate.UnionMember, len(members))
	is := make([]validate.ExtractorFn[*[]bool, bool], len(members))
	for i, name := range members {
		union[i] = validate.NewUnionMember(name)
		is[i] = func(set *[]bool) bool { return set != nil && (*set)[i] }
	}
	var before *[]bool
	if old != nil {
		before = &old
	}
	// The operation is always an update, because validate.Union looks at the old value only then. Without an old
	// value it validates as for a new object.
	return r.Add(validate.Union(context.Background(), operation.Operation{Type: operation.Update}, path, &set, before,
		validate.NewUnionMembership(union...), is...)...)
}

// Check applies a rule to a value.
func Check[T any](r *Rules, rule Rule[T], value *T, path *field.Path) bool {
	return r.Add(rule(context.Background(), operation.Operation{}, path, value, nil)...)
}

// Text requires that a text is set, and applies a rule to it.
// A missing text is reported only once: the rule is not applied to it.
func Text[T ~string](r *Rules, value T, path *field.Path, rule Rule[T]) bool {
	return r.Required(value == "", path) || Check(r, rule, &value, path)
}

// MaxItems refuses a list with more elements than most.
func MaxItems[T any](r *Rules, list []T, path *field.Path, most int) bool {
	return r.Add(validate.MaxItems(context.Background(), operation.Operation{}, path, list, nil, most)...)
}

// Elements refuses an element with the name of one before it, and applies rule to each element that has changed. old is the
// first old element of its name, nil if there is none.
func Elements[T any](
	r *Rules, list, old []T, path *field.Path, name func(*T) string, rule func(value, old *T, path *field.Path),
) {
	seen := sets.New[string]()
	for i := range list {
		if seen.Has(name(&list[i])) {
			r.Add(field.Duplicate(path.Index(i), list[i]))
		}
		seen.Insert(name(&list[i]))
	}
	for i := range list {
		// An element is compared with the old one of its name, not of its index, because the lists are maps by
		// name.
		before := Named(old, name(&list[i]), name)
		if before == nil || Changed(true, list[i], *before) {
			rule(&list[i], before, path.Index(i))
		}
	}
}

// SameElements refuses to add elements to a list, and to remove some. Elements are the same if their names are. There is one
// error for each of them.
func SameElements[T any](r *Rules, list, old []T, path *field.Path, name func(*T) string) bool {
	found := false
	for i := range list {
		if Named(old, name(&list[i]), name) == nil {
			found = r.Add(field.Forbidden(path.Index(i), "item may not be added"))
		}
	}
	for i := range old {
		if Named(list, name(&old[i]), name) == nil {
			err := field.Forbidden(path, "item may not be removed")
			err.ShortCircuit = true // it is reported although there are several
			found = r.Add(err)
		}
	}
	return found
}

// Named returns the first element of a list with a name, nil if there is none.
func Named[T any](list []T, want string, name func(*T) string) *T {
	for i := range list {
		if name(&list[i]) == want {
			return &list[i]
		}
	}
	return nil
}
