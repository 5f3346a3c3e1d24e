package registry

import (
	"context"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Strategy has the functions of a kind for the steps of a create or an update that are otherwise the same for all kinds
// (package write). T is the Go type of the storage version; Kind contains the result of Untyped. Every function may be
// nil. None may keep its arguments. Where old is an argument of a function that is also called on create, it is the zero
// value of T then.
//
// If T has a field Status, a write to the main resource cannot change the status, and a write to the status
// subresource can change nothing else.
type Strategy[T Object] struct {
	// StatusOnCreate leaves the status of a new object to PrepareCreate.
	StatusOnCreate bool
	// Generation makes the server set metadata.generation: to 1 on create, and to one more when the result of
	// GenerationOf has changed. If GenerationOf is nil, the field Spec of T is used.
	Generation   bool
	GenerationOf func(T) any
	// StatusKeepsMeta takes labels, annotations, owner references and finalizers from the old object too when the
	// status is updated.
	StatusKeepsMeta bool

	// PrepareCreate and PrepareUpdate change obj before it is validated, after its status was reset.
	PrepareCreate func(obj T)
	PrepareUpdate func(obj, old T)
	// PrepareStatusUpdate runs after everything but the status was taken from old.
	PrepareStatusUpdate func(obj, old T)

	// RightType reports whether obj has the apiVersion and the kind of this kind: an unstructured object may have any.
	// If not, validation reports it, and metadata is not validated.
	RightType func(obj T) bool
	// Validate returns the errors of an object on create and on update; it is not called for updates of the
	// status. Each of the three functions after it is called for one kind of write only. Their errors follow those
	// of Validate.
	Validate             func(obj T) field.ErrorList
	ValidateCreate       func(obj T) field.ErrorList
	ValidateUpdate       func(obj, old T) field.ErrorList
	ValidateStatusUpdate func(obj, old T) field.ErrorList

	// ValidateNamespace returns errors for fields that the namespace of the object does not allow. It is called
	// for new objects, and for updates of the object or its status. labels reads the labels of the namespace.
	ValidateNamespace func(obj, old T, labels func() (map[string]string, error)) field.ErrorList
	// ValidatePermissions returns errors for changes of obj that the user of the request has no permission for. It
	// is called for updates of the object or its status, but not for writes of the server itself. check returns
	// the error 403 unless the user has the permission for another request, such as one for a subresource that
	// exists only as the name of a permission. Its errors follow those of ValidateNamespace; those of the
	// functions above follow both.
	ValidatePermissions func(ctx context.Context, obj, old T, check func(*request.Info) error) field.ErrorList

	// Canonicalize changes a valid object to the only notation in which it is stored and returned.
	Canonicalize func(obj T)
	// Warn returns warnings for the client.
	Warn func(obj, old T) []string
	// WarnStatus is the same for updates of the status.
	WarnStatus func(obj T) []string

	// InContext has the functions that need the request.
	InContext InContext[T]
}

// InContext has functions of a Strategy for the few kinds that need the context of the request: its user, its group and
// version, its warnings, or its cancellation. Each is called after the function of the same name in Strategy.
type InContext[T Object] struct {
	PrepareCreate                                        func(ctx context.Context, obj T)
	ValidateCreate, ValidateUpdate, ValidateStatusUpdate func(ctx context.Context, obj, old T) field.ErrorList
}

// UntypedStrategy is a Strategy as the steps of a write call it, with objects of any type. A function is nil if the
// Strategy has none. old is nil on create.
type UntypedStrategy struct {
	// Spec and Status return pointers to these fields of an object. They are nil if the Go type has no such field.
	Spec, Status                    func(Object) any
	StatusOnCreate, StatusKeepsMeta bool
	// Generation returns the part of an object whose changes metadata.generation counts. It is nil if the kind has no
	// generation.
	Generation func(Object) any

	PrepareCreate                                        func(ctx context.Context, obj Object)
	PrepareUpdate, PrepareStatusUpdate                   func(obj, old Object)
	RightType                                            func(obj Object) bool
	ValidateCreate, ValidateUpdate, ValidateStatusUpdate func(ctx context.Context, obj, old Object) field.ErrorList

	ValidateNamespace   func(obj, old Object, labels func() (map[string]string, error)) field.ErrorList
	ValidatePermissions func(ctx context.Context, obj, old Object, check func(*request.Info) error) field.ErrorList

	Canonicalize func(obj Object)
	Warn         func(obj, old Object) []string
	WarnStatus   func(obj Object) []string
}

// Deletion describes what is special about the deletion of a kind's objects. As in Strategy, every function may be nil.
type Deletion[T Object] struct {
	// Grace returns the grace period in seconds for a delete with these options,
	// and whether the object is deleted gracefully at all (pods).
	Grace func(obj T, options *metav1.DeleteOptions) (seconds int64, graceful bool)
	// Started changes an object whose deletion begins but which stays for
	// now (a namespace becomes Terminating).
	Started func(obj T)
	// Finalizing reports whether something other than metadata.finalizers keeps a deleted object (a namespace's
	// spec.finalizers).
	Finalizing func(obj T) bool
	// Before returns an error to refuse a delete (of the default namespace).
	Before func(obj T) error
	// IgnoresPropagation means that the request that begins a deletion does not change the finalizers of the garbage
	// collector. It only matters to kinds with Started.
	IgnoresPropagation bool
}

// Table describes the Table of a kind's objects.
type Table[T Object] struct {
	// Columns are empty where the columns Name and Created At are enough.
	Columns []metav1.TableColumnDefinition
	// Cells returns the cells of an object's row, in the order of Columns.
	Cells func(obj T) []any
	// ListCells returns the function that is called instead of Cells for the objects of one response to a list, if their rows
	// depend on each other. It gets all these objects. If it is nil, Cells is called.
	ListCells func(all []T) func(obj T) []any
	// Conditions returns the conditions of an object's row; nil is none.
	Conditions func(obj T) []metav1.TableRowCondition
	// Compare sorts the rows of one response. If it is nil, they are in the order of the list: by namespace and name.
	Compare func(a, b T) int
}

// Untyped returns the strategy as the steps of a write call it. Its functions panic on objects of another type than T.
func (s Strategy[T]) Untyped() UntypedStrategy {
	u := UntypedStrategy{
		Spec:                 fieldOf[T]("Spec"),
		Status:               fieldOf[T]("Status"),
		StatusOnCreate:       s.StatusOnCreate,
		StatusKeepsMeta:      s.StatusKeepsMeta,
		PrepareUpdate:        changeOfUpdate(s.PrepareUpdate),
		PrepareStatusUpdate:  changeOfUpdate(s.PrepareStatusUpdate),
		RightType:            resultOf(s.RightType),
		ValidateCreate:       joined(rule(s.Validate), rule(s.ValidateCreate), s.InContext.ValidateCreate),
		ValidateUpdate:       joined(rule(s.Validate), updateRule(s.ValidateUpdate), s.InContext.ValidateUpdate),
		ValidateStatusUpdate: joined(updateRule(s.ValidateStatusUpdate), s.InContext.ValidateStatusUpdate),
		Canonicalize:         changeOf(s.Canonicalize),
		Warn:                 resultOfUpdate(s.Warn),
		WarnStatus:           resultOf(s.WarnStatus),
	}
	if s.Generation {
		u.Generation = u.Spec
		if s.GenerationOf != nil {
			u.Generation = resultOf(s.GenerationOf)
		}
	}
	if f, inContext := s.PrepareCreate, s.InContext.PrepareCreate; f != nil || inContext != nil {
		u.PrepareCreate = func(ctx context.Context, o Object) {
			if f != nil {
				f(o.(T))
			}
			if inContext != nil {
				inContext(ctx, o.(T))
			}
		}
	}
	if f := s.ValidateNamespace; f != nil {
		u.ValidateNamespace = func(o, old Object, labels func() (map[string]string, error)) field.ErrorList {
			before, _ := old.(T)
			return f(o.(T), before, labels)
		}
	}
	if f := s.ValidatePermissions; f != nil {
		u.ValidatePermissions = func(ctx context.Context, o, old Object, check func(*request.Info) error) field.ErrorList {
			return f(ctx, o.(T), old.(T), check)
		}
	}
	return u
}

// fieldOf returns a function that returns a pointer to the field of that name; nil if T has no such field.
func fieldOf[T Object](name string) func(Object) any {
	f, ok := reflect.TypeFor[T]().Elem().FieldByName(name)
	if !ok {
		return nil
	}
	return func(o Object) any { return reflect.ValueOf(o.(T)).Elem().FieldByIndex(f.Index).Addr().Interface() }
}

// rule returns a function that ignores the context and the old object; nil stays nil.
func rule[T Object](f func(T) field.ErrorList) func(context.Context, T, T) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(_ context.Context, obj, _ T) field.ErrorList { return f(obj) }
}

// updateRule returns a function that ignores the context; nil stays nil.
func updateRule[T Object](f func(T, T) field.ErrorList) func(context.Context, T, T) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(_ context.Context, obj, old T) field.ErrorList { return f(obj, old) }
}

// joined returns a function with the errors of all rules that are not nil; nil if there is none.
func joined[T Object](
	rules ...func(context.Context, T, T) field.ErrorList,
) func(context.Context, Object, Object) field.ErrorList {
	rules = slices.DeleteFunc(rules, func(f func(context.Context, T, T) field.ErrorList) bool { return f == nil })
	if len(rules) == 0 {
		return nil
	}
	return func(ctx context.Context, o, old Object) (errs field.ErrorList) {
		before, _ := old.(T)
		for _, f := range rules {
			errs = append(errs, f(ctx, o.(T), before)...)
		}
		return errs
	}
}

// Untyped returns the deletion as the steps of a delete call it. Its functions panic on objects of another type than T.
func (d Deletion[T]) Untyped() Deletion[Object] {
	out := Deletion[Object]{
		Started: changeOf(d.Started), Finalizing: resultOf(d.Finalizing), Before: resultOf(d.Before),
		IgnoresPropagation: d.IgnoresPropagation,
	}
	if f := d.Grace; f != nil {
		out.Grace = func(o Object, options *metav1.DeleteOptions) (int64, bool) { return f(o.(T), options) }
	}
	return out
}

// Untyped returns the table for objects of any type. Its functions panic on objects of another type than T.
func (t Table[T]) Untyped() Table[Object] {
	out := Table[Object]{Columns: t.Columns, Cells: resultOf(t.Cells), Conditions: resultOf(t.Conditions)}
	if f := t.Compare; f != nil {
		out.Compare = func(a, b Object) int { return f(a.(T), b.(T)) }
	}
	if f := t.ListCells; f != nil {
		out.ListCells = func(all []Object) func(Object) []any {
			typed := make([]T, len(all))
			for i, o := range all {
				typed[i] = o.(T)
			}
			return resultOf(f(typed))
		}
	}
	return out
}

// The functions below convert a function for a Go type to one for any Object; nil stays nil.

func changeOf[T Object](f func(T)) func(Object) {
	if f == nil {
		return nil
	}
	return func(o Object) { f(o.(T)) }
}

func changeOfUpdate[T Object](f func(T, T)) func(Object, Object) {
	if f == nil {
		return nil
	}
	return func(o, old Object) { f(o.(T), old.(T)) }
}

func resultOf[T Object, R any](f func(T) R) func(Object) R {
	if f == nil {
		return nil
	}
	return func(o Object) R { return f(o.(T)) }
}

// resultOfUpdate converts f. On create, Warn is called with a nil old; f then gets the zero value of T.
func resultOfUpdate[T Object, R any](f func(T, T) R) func(Object, Object) R {
	if f == nil {
		return nil
	}
	return func(o, old Object) R {
		before, _ := old.(T)
		return f(o.(T), before)
	}
}
