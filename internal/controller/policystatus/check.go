package policystatus

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
)

// checker checks expressions for one kind.
type checker struct {
	kind  schema.GroupVersionKind
	typed *writescope.Typed
}

// check returns the warnings for the validations of a policy and their messages. As in kube-controller-manager,
// match conditions and audit annotations are not checked, and variables only where a checked expression uses them.
func (c *Controller) check(
	ctx context.Context, policy *admissionregistrationv1.ValidatingAdmissionPolicy,
) []admissionregistrationv1.ExpressionWarning {
	checkers := c.checkers(ctx, policy)
	var warnings []admissionregistrationv1.ExpressionWarning
	add := func(path *field.Path, expression string) {
		if text := checkAll(checkers, expression); text != "" {
			warnings = append(warnings, admissionregistrationv1.ExpressionWarning{FieldRef: path.String(), Warning: text})
		}
	}
	for i, v := range policy.Spec.Validations {
		path := field.NewPath("spec", "validations").Index(i)
		add(path.Child("expression"), v.Expression)
		if v.MessageExpression != "" {
			add(path.Child("messageExpression"), v.MessageExpression)
		}
	}
	return warnings
}

// checkers returns a checker for each kind that the policy is about and that has a schema.
func (c *Controller) checkers(
	ctx context.Context, policy *admissionregistrationv1.ValidatingAdmissionPolicy,
) []checker {
	var params *apiservercel.DeclType
	if p := policy.Spec.ParamKind; p != nil {
		kind := schema.FromAPIVersionAndKind(p.APIVersion, p.Kind)
		if params = c.typeIfKnown(ctx, kind, kind.Kind+"2"); params == nil {
			params = apiservercel.DynType
		}
	}
	var all []checker
	for _, kind := range c.kindsOf(policy) {
		// kube-controller-manager appends the time to the names of types, and this server appends a number.
		object := c.typeIfKnown(ctx, kind, kind.Kind+"1")
		if object == nil {
			continue
		}
		one := checker{kind, writescope.NewTyped(object, params)}
		for _, v := range policy.Spec.Variables {
			one.typed.Declare(v.Name, v.Expression)
		}
		all = append(all, one)
	}
	return all
}

// typeIfKnown returns the type of a kind, nil if the kind has no schema.
func (c *Controller) typeIfKnown(
	ctx context.Context, kind schema.GroupVersionKind, name string,
) *apiservercel.DeclType {
	typ, err := c.typeOf(ctx, kind, name)
	if err != nil {
		c.Log.Debug("type checks of an admission policy leave out a kind", "kind", kind, "error", err)
		return nil
	}
	return typ
}

// checkAll returns the errors of an expression for all kinds, or "" if it is correct for every kind.
func checkAll(checkers []checker, expression string) string {
	var messages []string
	for _, one := range checkers {
		issues, err := one.typed.Check(expression)
		switch {
		case err != nil:
			messages = append(messages, fmt.Sprintf("%v: type checking error: %v\n", one.kind, err))
		case issues != "":
			messages = append(messages, fmt.Sprintf("%v: %s\n", one.kind, issues))
		}
	}
	return strings.Join(messages, "\n")
}
