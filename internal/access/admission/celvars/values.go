package celvars

import (
	"context"
	"errors"
	"fmt"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/lazy"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Write has the values that all expressions see of a write in one version. Its methods may be called concurrently.
type Write struct {
	attributes     *admission.Attributes
	kind           schema.GroupVersionKind
	object         tree
	old, requested *tree
}

// NewWrite returns a Write. names are the names by which the write matched a webhook or policy. object and old are
// in the version of names and may be nil. The caller must not change them afterwards.
func NewWrite(a *admission.Attributes, names admission.Names, object, old registry.Object) *Write {
	w := &Write{attributes: a, kind: names.Kind, old: &tree{}, requested: &tree{}}
	w.object.make = func() (any, error) { return treeOf(object, names.Kind) }
	w.old.make = func() (any, error) { return treeOf(old, names.Kind) }
	w.requested.make = func() (any, error) { return requestValue(a.Request(names)) }
	return w
}

// With returns the same write with another object, of the same version.
func (w *Write) With(object registry.Object) *Write {
	out := &Write{attributes: w.attributes, kind: w.kind, old: w.old, requested: w.requested}
	out.object.make = func() (any, error) { return treeOf(object, w.kind) }
	return out
}

// Object returns the value of the variable object, with apiVersion and kind; nil if there is none. It must not be
// changed.
func (w *Write) Object() (map[string]any, error) {
	switch object := w.object.get().(type) {
	case map[string]any:
		return object, nil
	case error:
		return nil, object
	}
	return nil, nil
}

// tree is a value of maps, lists, texts and numbers that is made when it is first asked for.
type tree struct {
	once  sync.Once
	make  func() (any, error)
	value any
}

// get returns the value. If make fails, every call returns its error, as a value of the CEL type error.
func (t *tree) get() any {
	t.once.Do(func() {
		value, err := t.make()
		if t.value = value; err != nil {
			t.value = types.WrapErr(err)
		}
	})
	return t.value
}

// treeOf returns an object as a tree with apiVersion and kind. A custom resource is a tree already and is not copied.
func treeOf(obj registry.Object, kind schema.GroupVersionKind) (any, error) {
	if obj == nil {
		return nil, nil
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	if kind.Kind != "" {
		out["apiVersion"], out["kind"] = kind.GroupVersion().String(), kind.Kind
	}
	return out, nil
}

// Inputs are the values that differ between the expressions about one write. Each may be missing.
type Inputs struct {
	// Params are the parameters of a binding, with ParamsKind, their kind.
	Params     registry.Object
	ParamsKind schema.GroupVersionKind
	// Namespace is the Namespace of the write.
	Namespace *corev1.Namespace
	// Authorizer answers the variable authorizer.
	Authorizer *Authorizer
	// Variables are the variables of the policy.
	Variables *Variables
}

// Values are the values of all variables for a list of expressions. Each variable of a policy is evaluated when it is
// first used, and once. Values may not be used by several goroutines at the same time.
type Values struct {
	write  *Write
	inputs Inputs
	params tree
	space  tree

	variables ref.Val
	ctx       context.Context // of the current evaluation
	budget    *cel.Budget     // the cost of variables is subtracted from it
	exhausted bool            // true if a variable cost more than what was left of budget
}

// Values returns the values for a list of expressions.
func (w *Write) Values(in Inputs) *Values {
	v := &Values{write: w, inputs: in}
	v.params.make = func() (any, error) { return treeOf(in.Params, in.ParamsKind) }
	v.space.make = func() (any, error) {
		if in.Namespace == nil {
			return nil, nil
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(shownNamespace(in.Namespace))
	}
	return v
}

// shownNamespace returns a copy of a Namespace without the fields that expressions do not see.
func shownNamespace(n *corev1.Namespace) *corev1.Namespace {
	out := *n
	out.TypeMeta = metav1.TypeMeta{}
	out.ManagedFields, out.OwnerReferences, out.SelfLink = nil, nil, ""
	return &out
}

// ResolveName returns the value of a variable for the evaluation of an expression.
func (v *Values) ResolveName(name string) (any, bool) {
	switch name {
	case writescope.Object:
		return v.write.object.get(), true
	case writescope.OldObject:
		return v.write.old.get(), true
	case writescope.Request:
		return v.write.requested.get(), true
	case writescope.Params:
		return v.params.get(), true
	case writescope.Namespace:
		return v.space.get(), true
	case writescope.Variables:
		return v.declaredVariables(), true
	case writescope.Authorizer:
		return v.inputs.Authorizer.value(), v.inputs.Authorizer != nil
	case writescope.RequestResourceAuthorizer:
		return v.inputs.Authorizer.requestResource(v.write.attributes), v.inputs.Authorizer != nil
	}
	return nil, false
}

// Parent returns nil: there are no other variables.
func (*Values) Parent() celgo.Activation { return nil }

func (v *Values) declaredVariables() ref.Val {
	if v.variables != nil || v.inputs.Variables == nil {
		return v.variables
	}
	fields := lazy.NewMapValue(v.inputs.Variables.typ)
	for _, declared := range v.inputs.Variables.named {
		fields.Append(declared.name, func(*lazy.MapValue) ref.Val { return v.evaluate(&declared) })
	}
	v.variables = fields
	return fields
}

// evaluate evaluates a variable of a policy. The expression that uses the variable pays its cost.
func (v *Values) evaluate(declared *variable) ref.Val {
	if err := declared.expression.Err; err != nil {
		return types.NewErr("composited variable %q fails to compile: %v", declared.name, err)
	}
	value, err := declared.expression.program.Evaluate(v.ctx, v, v.budget)
	switch {
	case errors.Is(err, cel.ErrBudget):
		v.exhausted = true
		v.budget.Exhaust()
	case errors.Is(err, cel.ErrUnknownCost):
		return types.NewErr("unable to calculate cost of variable %q", declared.name)
	}
	if err != nil {
		return types.WrapErr(fmt.Errorf("composited variable %q fails to evaluate: %w", declared.name, err))
	}
	return value
}
