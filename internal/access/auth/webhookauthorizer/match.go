package webhookauthorizer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// maxConditions limits the match conditions of a webhook.
const maxConditions = 64

// variable is the only variable of match conditions: the spec of the SubjectAccessReview.
const variable = "request"

// Conditions are compiled match conditions. The webhook is called only if all of them are
// true.
type Conditions struct{ list []condition }

type condition struct {
	text    string
	program *cel.Program
}

// Compile compiles match conditions. at is their path in the configuration. It returns nil if
// there are no conditions.
func Compile(expressions []string, at *field.Path) (*Conditions, field.ErrorList) {
	if len(expressions) > maxConditions {
		return nil, field.ErrorList{field.TooMany(at, len(expressions), maxConditions)}
	}
	var errs field.ErrorList
	out := &Conditions{}
	seen := map[string]bool{}
	scope := cel.NewScope(cel.Variable{Name: variable, Type: specType()})
	for i, text := range expressions {
		at := at.Index(i).Child("expression")
		switch {
		case strings.TrimSpace(text) == "":
			errs = append(errs, field.Required(at, ""))
			continue
		case seen[text]:
			errs = append(errs, field.Duplicate(at, text))
			continue
		}
		seen[text] = true
		c, err := compile(scope, text, at)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.list = append(out.list, c)
	}
	if len(out.list) == 0 {
		return nil, errs
	}
	return out, errs
}

func compile(scope *cel.Scope, text string, at *field.Path) (condition, *field.Error) {
	e, err := scope.Compile(text, cel.Stored)
	var unavailable *cel.EnvironmentError
	switch {
	case errors.As(err, &unavailable):
		return condition{}, field.InternalError(at, err)
	case err != nil:
		return condition{}, field.Invalid(at, text, err.Error())
	case e.Type() != types.BoolType:
		return condition{}, field.Invalid(at, text, fmt.Sprintf("must evaluate to bool but got %v", e.Type()))
	}
	program, err := e.Program()
	if err != nil {
		return condition{}, field.InternalError(at, fmt.Errorf("program %w", err))
	}
	return condition{text, program}, nil
}

// Match reports whether all conditions are true. If one is false, the result is false even if
// others return errors.
func (c *Conditions) Match(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	input := cel.Values{variable: valueOf(spec)}
	var failed []error
	for _, one := range c.list {
		out, err := one.program.Evaluate(ctx, input, nil)
		if err != nil {
			failed = append(failed, fmt.Errorf("cel evaluation error: expression '%v' resulted in error: %w", one.text, err))
			continue
		}
		if met, ok := out.Value().(bool); !ok {
			failed = append(failed,
				fmt.Errorf("cel evaluation error: expression '%v' eval result type should be bool but got %v", one.text,
					out.Type()))
		} else if !met {
			return false, nil
		}
	}
	return failed == nil, utilerrors.NewAggregate(failed)
}

func specType() *apiservercel.DeclType {
	text := apiservercel.StringType
	list := apiservercel.NewListType(text, -1)
	object := func(name string, members map[string]*apiservercel.DeclType) *apiservercel.DeclType {
		fields := make(map[string]*apiservercel.DeclField, len(members))
		for member, typ := range members {
			fields[member] = apiservercel.NewDeclField(member, typ, false, nil, nil)
		}
		return apiservercel.NewObjectType("kubernetes."+name, fields)
	}
	requirements := apiservercel.NewListType(object("SelectorRequirement", map[string]*apiservercel.DeclType{
		"key": text, "operator": text, "values": list,
	}), -1)
	selector := func(name string) *apiservercel.DeclType {
		return object(name, map[string]*apiservercel.DeclType{"rawSelector": text, "requirements": requirements})
	}
	return object("SubjectAccessReviewSpec", map[string]*apiservercel.DeclType{
		"resourceAttributes": object("ResourceAttributes", map[string]*apiservercel.DeclType{
			"namespace": text, "verb": text, "group": text, "version": text, "resource": text, "subresource": text, "name": text,
			"fieldSelector": selector("FieldSelectorAttributes"), "labelSelector": selector("LabelSelectorAttributes"),
		}),
		"nonResourceAttributes": object("NonResourceAttributes",
			map[string]*apiservercel.DeclType{"path": text, "verb": text}),
		"user":   text,
		"groups": list,
		"extra":  apiservercel.NewMapType(text, list, -1),
		"uid":    text,
	})
}

// valueOf returns the spec as the value of the variable. Empty members are present, except for
// resourceAttributes and nonResourceAttributes.
func valueOf(spec *authorizationv1.SubjectAccessReviewSpec) map[string]any {
	extra := map[string][]string{}
	for key, values := range spec.Extra {
		extra[key] = values
	}
	out := map[string]any{"user": spec.User, "groups": spec.Groups, "uid": spec.UID, "extra": extra}
	if n := spec.NonResourceAttributes; n != nil {
		out["nonResourceAttributes"] = map[string]string{"path": n.Path, "verb": n.Verb}
	}
	if r := spec.ResourceAttributes; r != nil {
		attributes := map[string]any{
			"namespace": r.Namespace, "verb": r.Verb, "group": r.Group, "version": r.Version,
			"resource": r.Resource, "subresource": r.Subresource, "name": r.Name,
		}
		if f := r.FieldSelector; f != nil {
			attributes["fieldSelector"] = map[string]any{
				"requirements": requirementsOf(f.Requirements, func(r metav1.FieldSelectorRequirement) (string, string, []string) {
					return r.Key, string(r.Operator), r.Values
				})}
		}
		if l := r.LabelSelector; l != nil {
			attributes["labelSelector"] = map[string]any{
				"requirements": requirementsOf(l.Requirements, func(r metav1.LabelSelectorRequirement) (string, string, []string) {
					return r.Key, string(r.Operator), r.Values
				})}
		}
		out["resourceAttributes"] = attributes
	}
	return out
}

func requirementsOf[R any](list []R, parts func(R) (key, operator string, values []string)) []map[string]any {
	out := make([]map[string]any, 0, len(list))
	for _, r := range list {
		key, operator, values := parts(r)
		out = append(out, map[string]any{"key": key, "operator": operator, "values": values})
	}
	return out
}
