package policies

import (
	"sync"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/admission/celvars"
	"github.com/keelson-dev/keelson/admission/match"
)

// policy is a ValidatingAdmissionPolicy. It is not changed.
type policy struct {
	name     string
	spec     *admissionregistrationv1.ValidatingAdmissionPolicySpec
	criteria *match.Criteria
	err      error // why there are no criteria; validation prevents that
	// params is the kind of the parameters, nil if the policy has none.
	params *schema.GroupVersionKind
	ignore bool // errors admit the write
	// compiled returns the expressions. They are compiled when a write first needs them.
	compiled func() *expressions
}

// expressions are the expressions of a policy.
type expressions struct {
	variables  *celvars.Variables
	conditions celvars.Conditions
	// validations and messages have an entry for each validation of the policy; that of messages is nil if the validation
	// has no messageExpression.
	validations, messages []*celvars.Expression
	// annotations has an entry for each audit annotation.
	annotations []*celvars.Expression
}

func newPolicy(obj *admissionregistrationv1.ValidatingAdmissionPolicy) *policy {
	p := &policy{
		name: obj.Name, spec: &obj.Spec,
		ignore: obj.Spec.FailurePolicy != nil && *obj.Spec.FailurePolicy == admissionregistrationv1.Ignore,
	}
	p.compiled = sync.OnceValue(p.compile)
	if obj.Spec.MatchConstraints == nil {
		p.err = errNoConstraints
	} else {
		p.criteria, p.err = criteriaOf(obj.Spec.MatchConstraints)
	}
	if kind := obj.Spec.ParamKind; kind != nil {
		gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		p.params = &gvk
	}
	return p
}

func (p *policy) compile() *expressions {
	c := celvars.NewCompiler(celvars.Options{Params: p.params != nil, Variables: true})
	for _, v := range p.spec.Variables {
		c.Variable(v.Name, v.Expression)
	}
	out := &expressions{
		variables: c.Variables(), conditions: c.Conditions(p.spec.MatchConditions),
		messages: make([]*celvars.Expression, len(p.spec.Validations)),
	}
	for i := range p.spec.Validations {
		v := &p.spec.Validations[i]
		out.validations = append(out.validations, c.Compile(v.Expression, true, types.BoolType))
		if v.MessageExpression != "" {
			out.messages[i] = c.Compile(v.MessageExpression, false, types.StringType)
		}
	}
	for _, a := range p.spec.AuditAnnotations {
		out.annotations = append(out.annotations, c.Compile(a.ValueExpression, true, types.StringType, types.NullType))
	}
	return out
}

// reasonOf returns the reason of a refusal by a validation.
func reasonOf(v *admissionregistrationv1.Validation) metav1.StatusReason {
	if v.Reason == nil {
		return metav1.StatusReasonInvalid
	}
	return *v.Reason
}
