package admissionregistration

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/cel"
	"github.com/keelson-dev/keelson/cel/writescope"
)

const (
	maxMatchConditions  = 64
	maxAuditAnnotations = 20
	// maxAuditExpression is the length of the expression of an audit annotation, in bytes.
	maxAuditExpression = 5 << 10
)

// policyValidation validates one ValidatingAdmissionPolicy.
type policyValidation struct {
	policy *admissionv1.ValidatingAdmissionPolicy
	// stored are the expressions of the policy before an update. They may use what new ones may not.
	stored sets.Set[string]
	// scopes compile the expressions of the policy but the match conditions, which do not see its variables.
	scopes, conditions *writescope.Scopes
	errs               field.ErrorList
}

func validatePolicy(_ context.Context, p *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	v := &policyValidation{policy: p}
	return v.validate(true)
}

func validatePolicyUpdate(_ context.Context, p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	v := &policyValidation{policy: p, stored: sets.New[string]()}
	for _, c := range old.Spec.MatchConditions {
		v.stored.Insert(c.Expression)
	}
	for _, one := range old.Spec.Variables {
		v.stored.Insert(one.Expression)
	}
	for _, one := range old.Spec.Validations {
		v.stored.Insert(one.Expression, one.MessageExpression)
	}
	for _, one := range old.Spec.AuditAnnotations {
		v.stored.Insert(one.ValueExpression)
	}
	same := reflect.DeepEqual(p.Spec.MatchConditions, old.Spec.MatchConditions) &&
		reflect.DeepEqual(p.Spec.ParamKind, old.Spec.ParamKind)
	return v.validate(!same)
}

func (v *policyValidation) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

func (v *policyValidation) validate(conditions bool) field.ErrorList {
	spec, path := &v.policy.Spec, field.NewPath("spec")
	params := spec.ParamKind != nil
	v.scopes = writescope.New(writescope.Options{Params: params, Variables: len(spec.Variables) > 0})
	v.conditions = writescope.New(writescope.Options{Params: params})
	v.add(validateChoice(spec.FailurePolicy, path.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	if params {
		v.add(validateParamKind(spec.ParamKind, path.Child("paramKind"))...)
	}
	at := path.Child("matchConstraints")
	if spec.MatchConstraints == nil {
		v.add(field.Required(at, ""))
	} else {
		v.add(validateMatchResources(spec.MatchConstraints, at)...)
		if len(spec.MatchConstraints.ResourceRules) == 0 {
			v.add(field.Required(at.Child("resourceRules"), ""))
		}
	}
	if conditions {
		v.matchConditions(path.Child("matchConditions"))
	}
	for i := range spec.Variables {
		v.variable(&spec.Variables[i], path.Child("variables").Index(i))
	}
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

// expression compiles an expression. shown is the value in the error.
func (v *policyValidation) expression(
	scopes *writescope.Scopes, source, shown string, authorizer bool, at *field.Path, returns ...*types.Type,
) *types.Type {
	origin := cel.New
	if v.stored.Has(shown) {
		origin = cel.Stored
	}
	_, typ, err := scopes.Compile(source, authorizer, origin, returns...)
	switch {
	case err == nil:
	case writescope.IsInternal(err):
		v.add(field.InternalError(at, err))
	default:
		v.add(field.Invalid(at, shown, err.Error()))
	}
	return typ
}

func (v *policyValidation) matchConditions(path *field.Path) {
	list := v.policy.Spec.MatchConditions
	if len(list) > maxMatchConditions {
		v.add(field.TooMany(path, len(list), maxMatchConditions))
	}
	names := sets.New[string]()
	for i, c := range list {
		at := path.Index(i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			v.add(field.Required(at.Child("expression"), ""))
		} else {
			v.expression(v.conditions, text, text, true, at.Child("expression"), types.BoolType)
		}
		if c.Name == "" {
			v.add(field.Required(at.Child("name"), ""))
			continue
		}
		v.add(validateQualifiedName(c.Name, at.Child("name"))...)
		if names.Has(c.Name) {
			v.add(field.Duplicate(at.Child("name"), c.Name))
		}
		names.Insert(c.Name)
	}
}

func validateQualifiedName(name string, at *field.Path) (errs field.ErrorList) {
	for _, why := range utilvalidation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(at, name, why))
	}
	return errs
}

func (v *policyValidation) variable(one *admissionv1.Variable, at *field.Path) {
	if strings.TrimSpace(one.Name) == "" {
		v.add(field.Required(at.Child("name"), "name is not specified"))
	} else if !isIdentifier(one.Name) {
		v.add(field.Invalid(at.Child("name"), one.Name, "must be a valid CEL identifier"))
	}
	if strings.TrimSpace(one.Expression) == "" {
		v.add(field.Required(at.Child("expression"), "expression is not specified"))
		return
	}
	typ := v.expression(v.scopes, one.Expression, one.Expression, true, at.Child("expression"))
	v.scopes.Declare(one.Name, typ)
}

// reserved are the words that are no identifiers.
var reserved = strings.Fields("true false null in as break const continue else for function if import let loop package " +
	"namespace return var void while")

// isIdentifier returns whether a text is an identifier of the Common Expression Language.
func isIdentifier(text string) bool {
	for i, c := range []byte(text) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return !slices.Contains(reserved, text)
}

func (v *policyValidation) validation(one *admissionv1.Validation, at *field.Path) {
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
	if one.Reason != nil {
		v.add(validateChoice(one.Reason, at.Child("reason"), "Forbidden", "Invalid", "RequestEntityTooLarge")...)
	}
}

func (v *policyValidation) auditAnnotations(path *field.Path) {
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
		if keys.Has(one.Key) {
			v.add(field.Duplicate(at.Child("key"), one.Key))
		}
		keys.Insert(one.Key)
	}
}

func (v *policyValidation) auditAnnotation(one *admissionv1.AuditAnnotation, at *field.Path) {
	if v.policy.Name == "" {
		v.add(field.Invalid(at.Child("key"), one.Key, "requires metadata.name be non-empty"))
	} else {
		v.add(validateQualifiedName(v.policy.Name+"/"+one.Key, at.Child("key"))...)
	}
	at = at.Child("valueExpression")
	switch text := strings.TrimSpace(one.ValueExpression); {
	case text == "":
		v.add(field.Required(at, "valueExpression is not specified"))
	case len(text) > maxAuditExpression:
		v.add(field.Required(at, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression)))
	default:
		v.expression(v.scopes, text, one.ValueExpression, true, at, types.StringType, types.NullType)
	}
}

// validateChoice validates a value that has to be one of a few; they are given in the order of the alphabet.
func validateChoice[T ~string](value *T, at *field.Path, choices ...T) field.ErrorList {
	if value == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	if !slices.Contains(choices, *value) {
		return field.ErrorList{field.NotSupported(at, *value, choices)}
	}
	return nil
}

func validateParamKind(kind *admissionv1.ParamKind, path *field.Path) (errs field.ErrorList) {
	at := path.Child("apiVersion")
	group, version, ok := strings.Cut(kind.APIVersion, "/")
	if !ok {
		group, version = "", kind.APIVersion
	}
	switch {
	case kind.APIVersion == "":
		errs = append(errs, field.Required(at, ""))
	case strings.Count(kind.APIVersion, "/") > 1:
		errs = append(errs, field.Invalid(at, kind.APIVersion, "unexpected GroupVersion string: "+kind.APIVersion))
	default:
		if why := utilvalidation.IsDNS1123Subdomain(group); group != "" && len(why) > 0 {
			errs = append(errs, field.Invalid(at, group, strings.Join(why, ",")))
		}
		if version == "" {
			errs = append(errs, field.Invalid(at, kind.APIVersion, "version must be specified"))
		} else if why := utilvalidation.IsDNS1035Label(version); len(why) > 0 {
			errs = append(errs, field.Invalid(at, version, strings.Join(why, ",")))
		}
	}
	at = path.Child("kind")
	if kind.Kind == "" {
		errs = append(errs, field.Required(at, ""))
	} else if why := utilvalidation.IsDNS1035Label(strings.ToLower(kind.Kind)); len(why) > 0 {
		errs = append(errs, field.Invalid(at, kind.Kind,
			"may have mixed case, but should otherwise match: "+strings.Join(why, ",")))
	}
	return errs
}

func validateBinding(_ context.Context, b *admissionv1.ValidatingAdmissionPolicyBinding) (errs field.ErrorList) {
	path := field.NewPath("spec")
	if b.Spec.PolicyName == "" {
		errs = append(errs, field.Required(path.Child("policyName"), ""))
	} else {
		for _, why := range validation.NameIsDNSSubdomain(b.Spec.PolicyName, false) {
			errs = append(errs, field.Invalid(path.Child("policyName"), b.Spec.PolicyName, why))
		}
	}
	if b.Spec.ParamRef != nil {
		errs = append(errs, validateParamRef(b.Spec.ParamRef, path.Child("paramRef"))...)
	}
	if b.Spec.MatchResources != nil {
		errs = append(errs, validateMatchResources(b.Spec.MatchResources, path.Child("matchResources"))...)
	}
	return append(errs, validateActions(b.Spec.ValidationActions, path.Child("validationActions"))...)
}

func validateBindingUpdate(ctx context.Context, b, _ *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	return validateBinding(ctx, b)
}

func validateActions(actions []admissionv1.ValidationAction, path *field.Path) (errs field.ErrorList) {
	for i := range actions {
		errs = append(errs, validateChoice(&actions[i], path.Index(i), admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if slices.Contains(actions[:i], actions[i]) {
			errs = append(errs, field.Duplicate(path.Index(i), actions[i]))
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation "+
			"failure information in the API response and headers serves no purpose)"))
	}
	if len(actions) == 0 {
		errs = append(errs, field.Required(path, "at least one validation action is required"))
	}
	return errs
}

func validateParamRef(r *admissionv1.ParamRef, path *field.Path) (errs field.ErrorList) {
	const exclusive = "name and selector are mutually exclusive"
	if r.Name != "" {
		errs = append(errs, validatePathSegment(r.Name, path.Child("name"))...)
		if r.Selector != nil {
			errs = append(errs, field.Forbidden(path.Child("name"), exclusive))
		}
	}
	if r.Selector != nil {
		errs = append(errs, validateSelector(r.Selector, path.Child("selector"))...)
		if r.Name != "" {
			errs = append(errs, field.Forbidden(path.Child("selector"), exclusive))
		}
	}
	if r.Name == "" && r.Selector == nil {
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	action := r.ParameterNotFoundAction
	if action != nil && *action == "" {
		action = nil
	}
	return append(errs, validateChoice(action, path.Child("parameterNotFoundAction"), admissionv1.DenyAction,
		admissionv1.AllowAction)...)
}
