package admissionregistration

import (
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// mutatingValidation validates one MutatingAdmissionPolicy.
type mutatingValidation struct {
	policyValidation
	policy *admissionv1.MutatingAdmissionPolicy
}

func validateMutatingPolicy(p *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	v := &mutatingValidation{policy: p}
	return v.validate(true)
}

// validateMutatingPolicyUpdate validates an update. Expressions that the stored policy has already in its match
// conditions or apply configurations are compiled as stored ones: they may use functions that a new expression may
// not use yet, for example after a downgrade.
func validateMutatingPolicyUpdate(p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	v := &mutatingValidation{policy: p}
	v.keepConditions(old.Spec.MatchConditions)
	for _, m := range old.Spec.Mutations {
		if m.ApplyConfiguration != nil { // kube-apiserver takes stored JSON patches and variables for new ones
			v.stored.Insert(m.ApplyConfiguration.Expression)
		}
	}
	return v.validate(!mutatingSpec(p).sameConditions(mutatingSpec(old)))
}

func mutatingSpec(p *admissionv1.MutatingAdmissionPolicy) *policySpec {
	s := &p.Spec
	return &policySpec{s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables}
}

func (v *mutatingValidation) validate(conditions bool) field.ErrorList {
	spec, path := &v.policy.Spec, field.NewPath("spec")
	v.common(mutatingSpec(v.policy), conditions, true)
	v.add(validateMutatingOperations(spec.MatchConstraints, path.Child("matchConstraints"))...)
	v.add(field.RequiredIf(len(spec.Mutations) == 0, path.Child("mutations"),
		"mutations must contain at least one item")...)
	for i := range spec.Mutations {
		v.mutation(&spec.Mutations[i], path.Child("mutations").Index(i))
	}
	// The field has no default, unlike that of a mutating webhook, whose default is Never.
	v.add(field.RequiredOneOf(path.Child("reinvocationPolicy"), spec.ReinvocationPolicy,
		admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	return v.errs
}

// validateMutatingOperations refuses rules for deletions: a delete has no object that a policy could change.
// The operation "*" is allowed and means CREATE, UPDATE and CONNECT here, unlike for validating policies. The
// rules of a policy and of its binding are both checked.
func validateMutatingOperations(m *admissionv1.MatchResources, path *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	for i := range m.ResourceRules {
		for _, operation := range m.ResourceRules[i].Operations {
			errs = append(errs, field.OneOf(path.Child("resourceRules", "operations"), operation,
				admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Update)...)
		}
	}
	return errs
}

// mutation validates a mutation: it must have a patch of the type that patchType says, and no other.
func (v *mutatingValidation) mutation(m *admissionv1.Mutation, at *field.Path) {
	const applyConfiguration, jsonPatch = "applyConfiguration", "jsonPatch"
	required := func(name string) {
		v.add(field.Required(at.Child(name), "must be specified when patchType is "+string(m.PatchType)))
	}
	refused := func(name string) {
		v.add(field.Invalid(at.Child(name), "{"+name+"}", "must not be specified when patchType is "+string(m.PatchType)))
	}
	switch m.PatchType {
	case "":
		v.add(field.Required(at.Child("patchType"), ""))
	case admissionv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			required(jsonPatch)
		} else {
			v.patch(m.JSONPatch.Expression, writescope.JSONPatchesType(), at.Child(jsonPatch, "expression"))
		}
		if m.ApplyConfiguration != nil {
			refused(applyConfiguration)
		}
	case admissionv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			required(applyConfiguration)
		} else {
			v.patch(m.ApplyConfiguration.Expression, writescope.ApplyConfigurationType(),
				at.Child(applyConfiguration, "expression"))
		}
		if m.JSONPatch != nil {
			refused(jsonPatch)
		}
	default:
		v.add(field.NotSupported(at.Child("patchType"), m.PatchType, []admissionv1.PatchType{
			admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch,
		}))
	}
}

// patch validates an expression that makes a patch.
func (v *mutatingValidation) patch(source string, returns *types.Type, at *field.Path) {
	origin := cel.New
	if v.stored.Has(source) {
		origin = cel.Stored
	}
	text := strings.TrimSpace(source)
	if text == "" {
		v.add(field.Required(at, ""))
		return
	}
	_, _, err := v.scopes.CompilePatch(text, origin, returns)
	v.compiled(err, text, at)
}

func validateMutatingBinding(b *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	path := field.NewPath("spec")
	errs := validatePolicyName(b.Spec.PolicyName, path.Child("policyName"))
	errs = append(errs, field.IfPresent(path.Child("paramRef"), b.Spec.ParamRef, validateParamRef)...)
	errs = append(errs, field.IfPresent(path.Child("matchResources"), b.Spec.MatchResources, validateMatchResources)...)
	return append(errs, validateMutatingOperations(b.Spec.MatchResources, path.Child("matchResources"))...)
}
