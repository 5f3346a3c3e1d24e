package admissionregistration

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
	"github.com/keelson-dev/keelson/internal/machinery/cel/writescope"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// maxMatchConditions is the limit that the API documents for policies and webhooks. All conditions may be
// evaluated for every request that the rules match.
const maxMatchConditions = 64

// policyValidation validates one policy of either kind.
type policyValidation struct {
	// stored are the expressions of the policy before an update. They may use what new ones may not.
	stored sets.Set[string]
	// scopes compile the expressions of the policy but the match conditions, which do not see its variables.
	scopes, conditions *writescope.Scopes
	errs               field.ErrorList
}

// keepConditions begins the stored expressions with those of the match conditions before an update.
func (v *policyValidation) keepConditions(old []admissionv1.MatchCondition) {
	v.stored = sets.New[string]()
	for _, c := range old {
		v.stored.Insert(c.Expression)
	}
}

// policySpec is what the specs of both kinds of policies have.
type policySpec struct {
	failure     *admissionv1.FailurePolicyType
	params      *admissionv1.ParamKind
	constraints *admissionv1.MatchResources
	conditions  []admissionv1.MatchCondition
	variables   []admissionv1.Variable
}

// sameConditions reports whether an update leaves the match conditions as they were. They are not validated then.
// The kind of the parameters counts, because only a policy with paramKind may use the variable params in its
// conditions.
func (s *policySpec) sameConditions(old *policySpec) bool {
	return equality.Semantic.DeepEqual(s.conditions, old.conditions) && equality.Semantic.DeepEqual(s.params, old.params)
}

func (v *policyValidation) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

// common validates what both kinds of policies have.
func (v *policyValidation) common(spec *policySpec, conditions, variables bool) {
	path := field.NewPath("spec")
	params := spec.params != nil
	v.scopes = writescope.New(writescope.Options{Params: params, Variables: variables})
	v.conditions = writescope.New(writescope.Options{Params: params})
	v.add(field.MandatoryOneOf(path.Child("failurePolicy"), spec.failure, admissionv1.Fail, admissionv1.Ignore)...)
	v.add(field.IfPresent(path.Child("paramKind"), spec.params, validateParamKind)...)
	at := path.Child("matchConstraints")
	if spec.constraints == nil {
		v.add(field.Required(at, ""))
	} else {
		v.add(validateMatchResources(spec.constraints, at)...)
		v.add(field.RequiredIf(len(spec.constraints.ResourceRules) == 0, at.Child("resourceRules"), "")...)
	}
	if conditions {
		v.matchConditions(spec.conditions, path.Child("matchConditions"))
	}
	for i := range spec.variables {
		v.variable(&spec.variables[i], path.Child("variables").Index(i))
	}
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
	v.compiled(err, shown, at)
	return typ
}

// compiled adds the error of an expression that could not be compiled.
func (v *policyValidation) compiled(err error, shown string, at *field.Path) {
	switch {
	case err == nil:
	case writescope.IsInternal(err):
		v.add(field.InternalError(at, err))
	default:
		v.add(field.Invalid(at, shown, err.Error()))
	}
}

// matchConditions validates the conditions with which a policy or webhook chooses requests. A name is required,
// has the form of a label key such as exclude-leases or example.com/exclude and identifies the condition in logs
// and for merging.
func (v *policyValidation) matchConditions(list []admissionv1.MatchCondition, path *field.Path) {
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
		v.add(field.LabelKey(at.Child("name"), c.Name)...)
		v.add(field.Unique(names, at.Child("name"), c.Name)...)
	}
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
	// The variable is declared after its expression is compiled, so an expression can use only variables before
	// it in the list. Cycles are impossible.
	typ := v.expression(v.scopes, one.Expression, one.Expression, true, at.Child("expression"))
	v.scopes.Declare(one.Name, typ)
}

// reserved are the words that cannot be identifiers.
// They are those of the language definition of CEL.
var reserved = strings.Fields("true false null in as break const continue else for function if import let loop package " +
	"namespace return var void while")

// isIdentifier reports whether a text is an identifier of the Common Expression Language.
func isIdentifier(text string) bool {
	for i, c := range []byte(text) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return !slices.Contains(reserved, text)
}

// validateParamKind validates the kind of the parameters. The apiVersion v1 has no group; rules.example.com/v1
// has one; a/b/v1 is refused. The kind does not have to exist yet, because its CustomResourceDefinition may be
// created later.
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
		if group != "" {
			errs = append(errs, field.Joined(at, group, "", utilvalidation.IsDNS1123Subdomain(group))...)
		}
		if version == "" {
			errs = append(errs, field.Invalid(at, kind.APIVersion, "version must be specified"))
		} else {
			errs = append(errs, field.Joined(at, version, "", utilvalidation.IsDNS1035Label(version))...)
		}
	}
	return append(errs, field.NotEmptyAnd(path.Child("kind"), kind.Kind, func(at *field.Path, kind string) field.ErrorList {
		return field.Joined(at, kind, "may have mixed case, but should otherwise match: ",
			utilvalidation.IsDNS1035Label(strings.ToLower(kind)))
	})...)
}

// validatePolicyName validates the name of the policy in a binding.
func validatePolicyName(name string, at *field.Path) field.ErrorList {
	return field.NotEmptyAnd(at, name, field.DNSSubdomain)
}

// validateParamRef validates the reference of a binding to its parameters. If name and selector are both set,
// each of them gets the error, as in kube-apiserver. For the action, "" is the same as no value.
func validateParamRef(r *admissionv1.ParamRef, path *field.Path) (errs field.ErrorList) {
	const exclusive = "name and selector are mutually exclusive"
	if r.Name != "" {
		errs = append(errs, field.PathSegment(path.Child("name"), r.Name)...)
		errs = append(errs, field.ForbiddenIf(r.Selector != nil, path.Child("name"), exclusive)...)
	}
	if r.Selector != nil {
		errs = append(errs, field.LabelSelector(path.Child("selector"), r.Selector)...)
		errs = append(errs, field.ForbiddenIf(r.Name != "", path.Child("selector"), exclusive)...)
	}
	errs = append(errs, field.RequiredIf(r.Name == "" && r.Selector == nil, path,
		"one of name or selector must be specified")...)
	action := r.ParameterNotFoundAction
	if action != nil && *action == "" {
		action = nil
	}
	return append(errs, field.MandatoryOneOf(path.Child("parameterNotFoundAction"), action, admissionv1.DenyAction,
		admissionv1.AllowAction)...)
}
