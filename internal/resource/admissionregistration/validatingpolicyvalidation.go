package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	// maxAuditAnnotations bounds how many annotations one policy adds to each audit event.
	maxAuditAnnotations = 20
	// maxAuditExpression is the length of the expression of an audit annotation, in bytes.
	maxAuditExpression = 5 << 10
)

// validatingValidation validates one ValidatingAdmissionPolicy.
type validatingValidation struct {
	policyValidation
	policy *admissionv1.ValidatingAdmissionPolicy
}

func validateValidatingPolicy(p *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	v := &validatingValidation{policy: p}
	return v.validate(true)
}

func validateValidatingPolicyUpdate(p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	v := &validatingValidation{policy: p}
	v.keepConditions(old.Spec.MatchConditions)
	for _, one := range old.Spec.Variables {
		v.stored.Insert(one.Expression)
	}
	for _, one := range old.Spec.Validations {
		v.stored.Insert(one.Expression, one.MessageExpression)
	}
	for _, one := range old.Spec.AuditAnnotations {
		v.stored.Insert(one.ValueExpression)
	}
	return v.validate(!validatingSpec(p).sameConditions(validatingSpec(old)))
}

func validatingSpec(p *admissionv1.ValidatingAdmissionPolicy) *policySpec {
	s := &p.Spec
	return &policySpec{s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables}
}

// validate validates the policy. conditions says whether the match conditions are validated. A policy without
// validations and audit annotations does nothing, so one of the lists is required.
func (v *validatingValidation) validate(conditions bool) field.ErrorList {
	spec, path := &v.policy.Spec, field.NewPath("spec")
	v.common(validatingSpec(v.policy), conditions, len(spec.Variables) > 0)
	if len(spec.Validations)+len(spec.AuditAnnotations) == 0 {
		const missing = "validations or auditAnnotations must contain at least one item"
		v.add(field.Required(path.Child("validations"), missing), field.Required(path.Child("auditAnnotations"), missing))
		return v.errs
	}
	for i := range spec.Validations {
		v.validation(&spec.Validations[i], path.Child("validations").Index(i))
	}
	v.auditAnnotations(path.Child("auditAnnotations"))
	return v.errs
}

// validation validates one rule of the policy. The messageExpression has the variables of the expression except
// the authorizer. The message must be one line: for a binding with the action Warn it is sent in an HTTP header.
func (v *validatingValidation) validation(one *admissionv1.Validation, at *field.Path) {
	if strings.TrimSpace(one.Expression) == "" {
		v.add(field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		v.expression(v.scopes, one.Expression, one.Expression, true, at.Child("expression"), types.BoolType)
	}
	if m := one.MessageExpression; m != "" && strings.TrimSpace(m) == "" {
		v.add(field.Invalid(at.Child("messageExpression"), m, "must be non-empty if specified"))
	} else if m != "" {
		v.expression(v.scopes, m, m, false, at.Child("messageExpression"), types.StringType)
	}
	text := strings.TrimSpace(one.Message)
	if one.Message != "" && text == "" {
		v.add(field.Invalid(at.Child("message"), one.Message, "must be non-empty if specified"))
	} else if strings.ContainsAny(text, "\n\r") {
		v.add(field.Invalid(at.Child("message"), one.Message, "must not contain line breaks"))
	}
	v.add(field.OptionalOneOf(at.Child("reason"), one.Reason, "Forbidden", "Invalid", "RequestEntityTooLarge")...)
}

func (v *validatingValidation) auditAnnotations(path *field.Path) {
	list := v.policy.Spec.AuditAnnotations
	if len(list) > maxAuditAnnotations {
		shown := make([]struct{ Key, ValueExpression string }, len(list)) // as kube-apiserver shows them
		for i := range list {
			shown[i].Key, shown[i].ValueExpression = list[i].Key, list[i].ValueExpression
		}
		v.add(field.Invalid(path, shown, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := sets.New[string]()
	for i, one := range list {
		at := path.Index(i)
		v.auditAnnotation(&one, at)
		v.add(field.Unique(keys, at.Child("key"), one.Key)...)
	}
}

func (v *validatingValidation) auditAnnotation(one *admissionv1.AuditAnnotation, at *field.Path) {
	// The key of the annotation in the audit event is POLICY/KEY, so both together have to be a qualified name.
	if v.policy.Name == "" {
		v.add(field.Invalid(at.Child("key"), one.Key, "requires metadata.name be non-empty"))
	} else {
		v.add(field.LabelKey(at.Child("key"), v.policy.Name+"/"+one.Key)...)
	}
	at = at.Child("valueExpression")
	switch text := strings.TrimSpace(one.ValueExpression); {
	case text == "":
		v.add(field.Required(at, "valueExpression is not specified"))
	case len(text) > maxAuditExpression:
		// The reason of this error is Required although a value is present, as in kube-apiserver.
		v.add(field.Required(at, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression)))
	default:
		// The value null means that the event does not get the annotation.
		v.expression(v.scopes, text, one.ValueExpression, true, at, types.StringType, types.NullType)
	}
}

func validateValidatingBinding(b *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	path := field.NewPath("spec")
	errs := validatePolicyName(b.Spec.PolicyName, path.Child("policyName"))
	errs = append(errs, field.IfPresent(path.Child("paramRef"), b.Spec.ParamRef, validateParamRef)...)
	errs = append(errs, field.IfPresent(path.Child("matchResources"), b.Spec.MatchResources, validateMatchResources)...)
	return append(errs, validateActions(b.Spec.ValidationActions, path.Child("validationActions"))...)
}

// validateActions validates what a failed validation leads to. Audit may stand beside Deny or Warn. The list has
// no default, so a binding always says what it does.
func validateActions(actions []admissionv1.ValidationAction, path *field.Path) (errs field.ErrorList) {
	for i, action := range actions {
		errs = append(errs, field.OneOf(path.Index(i), action, admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		errs = append(errs, field.DuplicateIf(slices.Contains(actions[:i], action), path.Index(i), action)...)
	}
	errs = append(errs, field.InvalidIf(slices.Contains(actions, admissionv1.Deny) &&
		slices.Contains(actions, admissionv1.Warn), path, actions,
		"must not contain both Deny and Warn (repeating the same validation "+
			"failure information in the API response and headers serves no purpose)")...)
	return append(errs, field.RequiredIf(len(actions) == 0, path, "")...)
}
