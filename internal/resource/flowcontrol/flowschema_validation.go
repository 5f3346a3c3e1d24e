package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const (
	// exemptPrecedence is the matchingPrecedence of the flow schema "exempt", which no other may have.
	exemptPrecedence = 1
	maxPrecedence    = 10000
)

func validateFlowSchema(f *flowcontrolv1.FlowSchema) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateFlowSchemaSpec(f.Name, &f.Spec, path)
	if fixed := mandatorySchema(f.Name); fixed != nil && !equality.Semantic.DeepEqual(&f.Spec, fixed) {
		errs = append(errs, field.Invalid(path, declare.Internal(f.Spec),
			fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name)))
	}
	return append(errs, validateFlowSchemaStatus(f)...)
}

func validateFlowSchemaStatus(f *flowcontrolv1.FlowSchema) field.ErrorList {
	return validateConditionTypes(f.Status.Conditions, func(c *flowcontrolv1.FlowSchemaCondition) string {
		return string(c.Type)
	})
}

// validateConditionTypes validates that each condition of a status has a type of its own.
func validateConditionTypes[T any](conditions []T, typeOf func(*T) string) (errs field.ErrorList) {
	for i := range conditions {
		at, t := field.NewPath("status", "conditions").Index(i).Child("type"), typeOf(&conditions[i])
		repeated := slices.ContainsFunc(conditions[:i], func(c T) bool { return typeOf(&c) == t })
		errs = append(errs, field.DuplicateIf(repeated, at, t)...)
		errs = append(errs, field.NotEmpty(at, t)...)
	}
	return errs
}

// validateFlowSchemaSpec validates a spec. The priority level only needs a valid name: it may be created later,
// and until then the condition Dangling is True.
func validateFlowSchemaSpec(name string, s *flowcontrolv1.FlowSchemaSpec, path *field.Path) (errs field.ErrorList) {
	at := path.Child("matchingPrecedence")
	switch n := s.MatchingPrecedence; {
	case n <= 0:
		errs = append(errs, field.Invalid(at, n, "must be a positive value"))
	case n > maxPrecedence:
		errs = append(errs, field.Invalid(at, n, fmt.Sprintf("must not be greater than %d", maxPrecedence)))
	case n == exemptPrecedence && name != flowcontrolv1.FlowSchemaNameExempt:
		errs = append(errs, field.Invalid(at, n, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := s.DistinguisherMethod; m != nil && m.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType &&
		m.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		err := field.NotSupported(path.Child("distinguisherMethod", "type"), m.Type, []flowcontrolv1.FlowDistinguisherMethodType{
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType})
		err.BadValue = declare.Internal(m) // kube-apiserver shows the whole method
		errs = append(errs, err)
	}
	errs = append(errs, field.RequiredAnd(path.Child("priorityLevelConfiguration", "name"), s.PriorityLevelConfiguration.Name,
		"must reference a priority level", field.DNSSubdomain)...)
	return append(errs, field.Each(path.Child("rules"), s.Rules, validateRules)...)
}

// validateRules validates which requests of whom a schema is for. A request matches if it matches one subject and
// one rule.
func validateRules(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.RequiredIf(len(r.Subjects) == 0, path.Child("subjects"),
		"subjects must contain at least one value")...)
	errs = append(errs, field.Each(path.Child("subjects"), r.Subjects, validateSubject)...)
	errs = append(errs, field.RequiredIf(len(r.ResourceRules)+len(r.NonResourceRules) == 0, path,
		"at least one of resourceRules and nonResourceRules has to be non-empty")...)
	errs = append(errs, field.Each(path.Child("resourceRules"), r.ResourceRules, validateResourceRule)...)
	return append(errs, field.Each(path.Child("nonResourceRules"), r.NonResourceRules, validateNonResourceRule)...)
}

// validateSubject validates that a subject has the one field that its kind names.
func validateSubject(s *flowcontrolv1.Subject, path *field.Path) (errs field.ErrorList) {
	kinds := [...]struct {
		kind    flowcontrolv1.SubjectKind
		name    string // of the field
		present bool
	}{
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil},
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil},
	}
	switch s.Kind {
	case flowcontrolv1.SubjectKindGroup:
		errs = append(errs, field.RequiredIf(s.Group != nil && s.Group.Name == "", path.Child("group", "name"), "")...)
	case flowcontrolv1.SubjectKindServiceAccount:
		errs = append(errs, field.IfPresent(path.Child("serviceAccount"), s.ServiceAccount, validateServiceAccount)...)
	case flowcontrolv1.SubjectKindUser:
		errs = append(errs, field.RequiredIf(s.User != nil && s.User.Name == "", path.Child("user", "name"), "")...)
	default:
		return field.ErrorList{field.NotSupported(path.Child("kind"), s.Kind, []flowcontrolv1.SubjectKind{
			kinds[0].kind, kinds[1].kind, kinds[2].kind})}
	}
	for _, k := range kinds {
		switch at := path.Child(k.name); {
		case k.kind == s.Kind && !k.present:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", k.name, k.kind)))
		case k.kind != s.Kind && k.present:
			errs = append(errs, field.Forbidden(at,
				fmt.Sprintf("%s is forbidden when subject kind is not '%s'", k.name, k.kind)))
		}
	}
	return errs
}

// validateServiceAccount validates a service account. The name may be "*", for all service accounts of the
// namespace. The namespace may not.
func validateServiceAccount(s *flowcontrolv1.ServiceAccountSubject, path *field.Path) (errs field.ErrorList) {
	if s.Name != flowcontrolv1.NameAll {
		errs = append(errs, field.NotEmptyAnd(path.Child("name"), s.Name, field.DNSSubdomain)...)
	}
	return append(errs, field.RequiredAnd(path.Child("namespace"), s.Namespace,
		"must specify namespace for service account", field.DNSLabel)...)
}

// validateResourceRule validates a rule for requests of resources. Namespaces are required unless the rule
// matches requests without a namespace. Then they may be empty, and the rule matches only those.
func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	errs = append(errs, declare.EntriesOrAll(r.APIGroups, path.Child("apiGroups"),
		"resource rules must supply at least one api group", "api groups")...)
	errs = append(errs, declare.EntriesOrAll(r.Resources, path.Child("resources"),
		"resource rules must supply at least one resource", "resources")...)
	if at := path.Child("namespaces"); len(r.Namespaces) > 0 || !r.ClusterScope {
		errs = append(errs, declare.EntriesOrAll(r.Namespaces, at,
			"resource rules that are not cluster scoped must supply at least one namespace", "namespaces")...)
		errs = append(errs, validateNamespaces(r.Namespaces, at)...)
	}
	return errs
}

func validateNamespaces(list []string, path *field.Path) (errs field.ErrorList) {
	if slices.Contains(list, flowcontrolv1.NamespaceEvery) {
		return nil
	}
	for i, name := range list {
		for _, why := range names.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(path.Index(i), name,
				"each member of this list must be '*' or a DNS-1123 label; "+why))
		}
	}
	return errs
}

func validateNonResourceRule(r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	at := path.Child("nonResourceURLs")
	errs = append(errs, declare.EntriesOrAll(r.NonResourceURLs, at,
		"nonResourceURLs must contain at least one value", "non-resource URLs")...)
	if slices.Contains(r.NonResourceURLs, flowcontrolv1.NonResourceAll) {
		return errs
	}
	for i, url := range r.NonResourceURLs {
		if why := checkURL(url); why != "" {
			errs = append(errs, field.Invalid(at.Index(i), url, why))
		}
	}
	return errs
}

// checkURL returns what is wrong with a path of requests for no resource, "" if nothing is.
// For example, /healthz, /healthz/* and / are accepted, and /*/healthz and healthz are refused.
func checkURL(url string) string {
	switch {
	case url == "":
		return "must not be empty"
	case !strings.HasPrefix(url, "/"):
		return "must start with slash"
	case strings.Contains(url, " "):
		return "must not contain white-space"
	case strings.Contains(url, "//"):
		return "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(url, "/*"), "*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

// validateVerbs validates the verbs of a rule. One error names the whole list, whichever verb is wrong. The set
// is closed, unlike in RBAC, where any verb is valid.
func validateVerbs(verbs []string, path *field.Path) field.ErrorList {
	supported := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	errs := declare.EntriesOrAll(verbs, path, "verbs must contain at least one value", "verbs")
	if slices.Contains(verbs, flowcontrolv1.VerbAll) {
		return errs
	}
	if slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(supported, v) }) {
		err := field.NotSupported(path, "", supported)
		err.BadValue = verbs
		errs = append(errs, err)
	}
	return errs
}
