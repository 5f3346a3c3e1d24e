package webhookauthorizer

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// mostConditions is how many conditions a webhook may have.
const mostConditions = 64

// variable is what conditions see: the spec of the review.
const variable = "request"

// Conditions are the compiled conditions under which a webhook is asked.
type Conditions struct{ list []condition }

type condition struct {
	text    string
	program cel.Program
}

// Compile compiles conditions. None are nil. at is where they are in a
// configuration.
func Compile(expressions []string, at *field.Path) (*Conditions, field.ErrorList) {
	if len(expressions) > mostConditions {
		return nil, field.ErrorList{field.TooMany(at, len(expressions), mostConditions)}
	}
	var errs field.ErrorList
	out := &Conditions{}
	seen := map[string]bool{}
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
		c, err := compile(text, at)
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

func compile(text string, at *field.Path) (condition, *field.Error) {
	env, err := env()
	if err != nil {
		return condition{}, field.InternalError(at, fmt.Errorf("unexpected error loading CEL environment: %w", err))
	}
	tree, issues := env.Compile(text)
	if issues != nil {
		return condition{}, field.Invalid(at, text, "compilation failed: "+issues.String())
	}
	if tree.OutputType() != cel.BoolType {
		return condition{}, field.Invalid(at, text, fmt.Sprintf("must evaluate to bool but got %v", tree.OutputType()))
	}
	program, err := env.Program(tree)
	if err != nil {
		return condition{}, field.InternalError(at, fmt.Errorf("program instantiation failed: %w", err))
	}
	return condition{text, program}, nil
}

// Match says whether all conditions are met. One that is not decides, whatever
// errors others have.
func (c *Conditions) Match(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	input := map[string]any{variable: valueOf(spec)}
	var failed []error
	for _, one := range c.list {
		out, _, err := one.program.ContextEval(ctx, input)
		if err != nil {
			failed = append(failed, fmt.Errorf("cel evaluation error: expression '%v' resulted in error: %w", one.text, err))
			continue
		}
		if met, ok := out.Value().(bool); !ok {
			failed = append(failed, fmt.Errorf("cel evaluation error: expression '%v' eval result type should be bool but got %v", one.text, out.Type()))
		} else if !met {
			return false, nil
		}
	}
	if failed != nil {
		return false, utilerrors.NewAggregate(failed)
	}
	return true, nil
}

// env is what conditions may use. It is made when the first one is compiled: it
// takes some milliseconds.
var env = sync.OnceValues(func() (*cel.Env, error) {
	typ := specType()
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(variable, typ.CelType())},
		DeclTypes:         []*apiservercel.DeclType{typ},
	})
	if err != nil {
		return nil, err
	}
	return set.StoredExpressionsEnv(), nil
})

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
		"nonResourceAttributes": object("NonResourceAttributes", map[string]*apiservercel.DeclType{"path": text, "verb": text}),
		"user":                  text,
		"groups":                list,
		"extra":                 apiservercel.NewMapType(text, list, -1),
		"uid":                   text,
	})
}

// valueOf is the spec as conditions see it, with the members that are empty.
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
			attributes["fieldSelector"] = map[string]any{"requirements": requirementsOf(f.Requirements, func(r metav1.FieldSelectorRequirement) (string, string, []string) {
				return r.Key, string(r.Operator), r.Values
			})}
		}
		if l := r.LabelSelector; l != nil {
			attributes["labelSelector"] = map[string]any{"requirements": requirementsOf(l.Requirements, func(r metav1.LabelSelectorRequirement) (string, string, []string) {
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
