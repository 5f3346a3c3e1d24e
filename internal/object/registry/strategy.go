package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy has the functions of a kind for the steps of a create or an update that are otherwise the same for all kinds
// (package write). T is the Go type of the storage version; Kind contains the result of Untyped. Every function may be
// nil. None may keep its arguments.
type Strategy[T Object] struct {
	// Spec and Status return pointers to those parts of an object, which the steps reset and compare. A kind with
	// Status drops a status that is sent to the main resource, and everything but the status that is sent to the
	// status subresource.
	Spec, Status func(T) any
	// StatusOnCreate leaves the status of a new object to PrepareCreate.
	StatusOnCreate bool
	// Generation keeps metadata.generation: 1 on create, one more when what GenerationOf returns has changed. A nil
	// GenerationOf is Spec.
	Generation   bool
	GenerationOf func(T) any
	// StatusKeepsMeta takes labels, annotations, owner references and finalizers from the old object too when the
	// status is updated.
	StatusKeepsMeta bool

	// PrepareCreate and PrepareUpdate change obj before it is validated, after its status was reset.
	PrepareCreate func(ctx context.Context, obj T)
	PrepareUpdate func(ctx context.Context, obj, old T)
	// PrepareStatusUpdate runs after everything but Status was taken from old.
	PrepareStatusUpdate func(ctx context.Context, obj, old T)

	// RightType reports whether obj has the apiVersion and the kind of this kind: an unstructured object may have any.
	// If not, Validate reports it, and metadata is not validated.
	RightType            func(obj T) bool
	Validate             func(ctx context.Context, obj T) field.ErrorList
	ValidateUpdate       func(ctx context.Context, obj, old T) field.ErrorList
	ValidateStatusUpdate func(ctx context.Context, obj, old T) field.ErrorList

	// ValidateNamespace returns what the namespace of an object does not allow in it, of a new object and of updates of
	// the object or its status; old is the zero value of T on create. labels reads the labels of the namespace.
	ValidateNamespace func(obj, old T, labels func() (map[string]string, error)) field.ErrorList

	// Canonicalize changes a valid object to the one notation that is stored and answered.
	Canonicalize func(obj T)
	// Warn returns warnings for the client; old is the zero value of T on create.
	Warn func(ctx context.Context, obj, old T) []string
	// WarnStatus is the same for updates of the status.
	WarnStatus func(obj T) []string
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
	Before func(ctx context.Context, obj T) error
	// IgnoresPropagation means that the request that begins a deletion does not change the finalizers of the garbage
	// collector. It only matters to kinds with Started.
	IgnoresPropagation bool
}

// Table describes the Table of a kind's objects.
type Table[T Object] struct {
	// Columns are empty where the columns Name and Created At are enough.
	Columns []metav1.TableColumnDefinition
	// Cells returns the cells of an object's row, in the order of Columns, and the row's conditions.
	Cells func(obj T) ([]any, []metav1.TableRowCondition)
	// Compare sorts the rows of one response. If it is nil, they are in the order of the list: by namespace and name.
	Compare func(a, b T) int
}

// Untyped returns the strategy as the steps of a write call it. Its functions panic on objects of another type than T.
func (s Strategy[T]) Untyped() Strategy[Object] {
	return Strategy[Object]{
		Spec:                 resultOf(s.Spec),
		Status:               resultOf(s.Status),
		StatusOnCreate:       s.StatusOnCreate,
		Generation:           s.Generation,
		GenerationOf:         resultOf(s.GenerationOf),
		StatusKeepsMeta:      s.StatusKeepsMeta,
		PrepareCreate:        changeOfNew(s.PrepareCreate),
		PrepareUpdate:        changeOfUpdate(s.PrepareUpdate),
		PrepareStatusUpdate:  changeOfUpdate(s.PrepareStatusUpdate),
		RightType:            resultOf(s.RightType),
		Validate:             resultOfNew(s.Validate),
		ValidateUpdate:       resultOfUpdate(s.ValidateUpdate),
		ValidateStatusUpdate: resultOfUpdate(s.ValidateStatusUpdate),
		ValidateNamespace:    resultInNamespace(s.ValidateNamespace),
		Canonicalize:         changeOf(s.Canonicalize),
		Warn:                 resultOfUpdate(s.Warn),
		WarnStatus:           resultOf(s.WarnStatus),
	}
}

// Untyped returns the deletion as the steps of a delete call it. Its functions panic on objects of another type than T.
func (d Deletion[T]) Untyped() Deletion[Object] {
	out := Deletion[Object]{
		Started: changeOf(d.Started), Finalizing: resultOf(d.Finalizing), Before: resultOfNew(d.Before),
		IgnoresPropagation: d.IgnoresPropagation,
	}
	if f := d.Grace; f != nil {
		out.Grace = func(o Object, options *metav1.DeleteOptions) (int64, bool) { return f(o.(T), options) }
	}
	return out
}

// Untyped returns the table for objects of any type. Its functions panic on objects of another type than T.
func (t Table[T]) Untyped() Table[Object] {
	out := Table[Object]{Columns: t.Columns}
	if f := t.Cells; f != nil {
		out.Cells = func(o Object) ([]any, []metav1.TableRowCondition) { return f(o.(T)) }
	}
	if f := t.Compare; f != nil {
		out.Compare = func(a, b Object) int { return f(a.(T), b.(T)) }
	}
	return out
}

// The functions below make a function of a Go type one of any Object; nil stays nil.

func changeOf[T Object](f func(T)) func(Object) {
	if f == nil {
		return nil
	}
	return func(o Object) { f(o.(T)) }
}

func changeOfNew[T Object](f func(context.Context, T)) func(context.Context, Object) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, o Object) { f(ctx, o.(T)) }
}

func changeOfUpdate[T Object](f func(context.Context, T, T)) func(context.Context, Object, Object) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, o, old Object) { f(ctx, o.(T), old.(T)) }
}

func resultOf[T Object, R any](f func(T) R) func(Object) R {
	if f == nil {
		return nil
	}
	return func(o Object) R { return f(o.(T)) }
}

func resultOfNew[T Object, R any](f func(context.Context, T) R) func(context.Context, Object) R {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, o Object) R { return f(ctx, o.(T)) }
}

// resultOfUpdate passes a nil old, which Warn is called with on create, as the zero value of T.
func resultOfUpdate[T Object, R any](f func(context.Context, T, T) R) func(context.Context, Object, Object) R {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, o, old Object) R {
		before, _ := old.(T)
		return f(ctx, o.(T), before)
	}
}

func resultInNamespace[T Object](
	f func(T, T, func() (map[string]string, error)) field.ErrorList,
) func(Object, Object, func() (map[string]string, error)) field.ErrorList {
	if f == nil {
		return nil
	}
	return func(o, old Object, labels func() (map[string]string, error)) field.ErrorList {
		before, _ := old.(T)
		return f(o.(T), before, labels)
	}
}
