package policies

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission/celvars"
	"github.com/keelson-dev/keelson/internal/access/admission/match"
	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
)

// policy is a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy. It is not changed.
type policy struct {
	name     string
	criteria *match.Criteria
	err      error // the reason if criteria is nil; validation refuses such policies
	// params is the kind of the parameters, nil if the policy has none.
	params *schema.GroupVersionKind
	ignore bool // failurePolicy is Ignore
	// validating or mutating is the declaration of the policy; the other one is nil.
	validating *admissionregistrationv1.ValidatingAdmissionPolicySpec
	mutating   *admissionregistrationv1.MutatingAdmissionPolicySpec
	// content is the same for policies with the same expressions, which share compiled.
	content content
	// compiled returns the expressions. They are compiled when a write first needs them.
	compiled func() *expressions
}

// content is a hash of the fields of a policy that its expressions depend on.
type content [sha256.Size]byte

func contentOf(spec any) content {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // cannot happen: texts can always be encoded
	}
	return sha256.Sum256(text)
}

// expressions are the compiled expressions of a policy.
type expressions struct {
	variables  *celvars.Variables
	conditions celvars.Conditions
	// validations and messages have an entry for each validation of the policy. An entry of messages is nil if the
	// validation has no messageExpression.
	validations, messages []*celvars.Expression
	// annotations has an entry for each audit annotation.
	annotations []*celvars.Expression
	// mutations has an entry for each mutation.
	mutations []mutation
}

// newValidatingPolicy returns a ValidatingAdmissionPolicy.
func newValidatingPolicy(obj *admissionregistrationv1.ValidatingAdmissionPolicy) *policy {
	p := &policy{name: obj.Name, validating: &obj.Spec}
	p.setUp(obj.Spec.MatchConstraints, obj.Spec.ParamKind, obj.Spec.FailurePolicy)
	p.compiled = sync.OnceValue(p.compileValidations)
	spec := obj.Spec
	spec.MatchConstraints, spec.FailurePolicy = nil, nil
	p.content = contentOf(spec)
	return p
}

// newMutatingPolicy returns a MutatingAdmissionPolicy.
func newMutatingPolicy(obj *admissionregistrationv1.MutatingAdmissionPolicy) *policy {
	p := &policy{name: obj.Name, mutating: &obj.Spec}
	p.setUp(obj.Spec.MatchConstraints, obj.Spec.ParamKind, obj.Spec.FailurePolicy)
	p.compiled = sync.OnceValue(p.compileMutations)
	spec := obj.Spec
	spec.MatchConstraints, spec.FailurePolicy, spec.ReinvocationPolicy = nil, nil, ""
	p.content = contentOf(spec)
	return p
}

// setUp sets the fields that both kinds of policies have.
func (p *policy) setUp(
	constraints *admissionregistrationv1.MatchResources, params *admissionregistrationv1.ParamKind,
	failure *admissionregistrationv1.FailurePolicyType,
) {
	p.ignore = failure != nil && *failure == admissionregistrationv1.Ignore
	if constraints == nil {
		p.err = errNoConstraints
	} else {
		p.criteria, p.err = criteriaOf(constraints)
	}
	if params != nil {
		gvk := schema.FromAPIVersionAndKind(params.APIVersion, params.Kind)
		p.params = &gvk
	}
}

// compileVariables compiles the variables and match conditions of a policy. The caller then compiles its other
// expressions.
func (p *policy) compileVariables(
	variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition,
) (*celvars.Compiler, *expressions) {
	c := celvars.NewCompiler(celvars.Options{Params: p.params != nil, Variables: true})
	for _, v := range variables {
		c.Variable(v.Name, v.Expression)
	}
	return c, &expressions{variables: c.Variables(), conditions: c.Conditions(conditions)}
}

func (p *policy) compileValidations() *expressions {
	spec := p.validating
	c, out := p.compileVariables(spec.Variables, spec.MatchConditions)
	out.messages = make([]*celvars.Expression, len(spec.Validations))
	for i := range spec.Validations {
		v := &spec.Validations[i]
		out.validations = append(out.validations, c.Compile(v.Expression, true, types.BoolType))
		if v.MessageExpression != "" {
			out.messages[i] = c.Compile(v.MessageExpression, false, types.StringType)
		}
	}
	for _, a := range spec.AuditAnnotations {
		out.annotations = append(out.annotations, c.Compile(a.ValueExpression, true, types.StringType, types.NullType))
	}
	return out
}

func (p *policy) compileMutations() *expressions {
	spec := p.mutating
	c, out := p.compileVariables(spec.Variables, spec.MatchConditions)
	for i := range spec.Mutations {
		switch m := &spec.Mutations[i]; { // validation lets nothing else pass
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			out.mutations = append(out.mutations,
				mutation{c.CompilePatch(m.JSONPatch.Expression, writescope.JSONPatchesType()), applyOperations})
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			out.mutations = append(out.mutations,
				mutation{c.CompilePatch(m.ApplyConfiguration.Expression, writescope.ApplyConfigurationType()), applyConfiguration})
		}
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
