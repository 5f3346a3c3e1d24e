package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateMatchResources validates which writes a policy or a binding concerns.
func validateMatchResources(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	errs := field.MandatoryOneOf(at.Child("matchPolicy"), m.MatchPolicy, admissionv1.Equivalent, admissionv1.Exact)
	errs = append(errs, requireSelector(at.Child("namespaceSelector"), m.NamespaceSelector)...)
	errs = append(errs, requireSelector(at.Child("objectSelector"), m.ObjectSelector)...)
	errs = append(errs, field.Each(at.Child("resourceRules"), m.ResourceRules, validateNamedRule)...)
	return append(errs, field.Each(at.Child("excludeResourceRules"), m.ExcludeResourceRules, validateNamedRule)...)
}

// requireSelector requires a selector. The defaults set an empty one, which matches everything; see defaultMatch.
func requireSelector(at *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return field.Join(field.RequiredIf(s == nil, at, ""), field.LabelSelector(at, s))
}

func validateNamedRule(r *admissionv1.NamedRuleWithOperations, at *field.Path) (errs field.ErrorList) {
	for i, name := range r.ResourceNames {
		errs = append(errs, field.PathSegment(at.Child("resourceNames").Index(i), name)...)
		errs = append(errs, field.DuplicateIf(slices.Contains(r.ResourceNames[:i], name),
			at.Child("resourceNames").Index(i), name)...)
	}
	return append(errs, validateRule(&r.RuleWithOperations, at)...)
}

// validateRule validates a rule of a policy or a webhook.
func validateRule(r *admissionv1.RuleWithOperations, at *field.Path) field.ErrorList {
	errs := declare.EntriesOrAll(r.Operations, at.Child("operations"), "", "operations")
	for i, operation := range r.Operations {
		errs = append(errs, field.OneOf(at.Child("operations").Index(i), operation, admissionv1.OperationAll,
			admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update)...)
	}
	errs = append(errs, declare.EntriesOrAll(r.APIGroups, at.Child("apiGroups"), "", "API groups")...)
	errs = append(errs, declare.EntriesOrAll(r.APIVersions, at.Child("apiVersions"), "", "API versions")...)
	errs = append(errs, field.EachValue(at.Child("apiVersions"), r.APIVersions, field.NotEmpty)...)
	errs = append(errs, validateResources(r.Resources, at.Child("resources"))...)
	return append(errs, field.OptionalOneOf(at.Child("scope"), r.Scope, admissionv1.AllScopes, admissionv1.ClusterScope,
		admissionv1.NamespacedScope)...)
}

// validateResources validates resources and subresources, such as pods, pods/status, pods/*, */scale, * and */*. The
// checks depend on the order of the list, as those of kube-apiserver do.
// For example, [pods/*, pods/status] is refused, and [pods/status, pods/*] is accepted. [*, pods] is refused, and
// [pods, *] is accepted, because only the last entry without a slash is remembered.
func validateResources(resources []string, at *field.Path) (errs field.ErrorList) {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	allOf, inAll := map[string]bool{}, map[string]bool{} // the x of x/* and of */x
	plain := false
	for i, entry := range resources {
		resource, sub, ok := strings.Cut(entry, "/")
		switch {
		case entry == "":
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		case !ok:
			plain = entry != "*"
			continue
		}
		if allOf[resource] {
			errs = append(errs,
				field.Invalid(at.Index(i), entry, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, entry)))
		}
		if inAll[sub] {
			errs = append(errs,
				field.Invalid(at.Index(i), entry, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, entry)))
		}
		allOf[resource] = allOf[resource] || sub == "*"
		inAll[sub] = inAll[sub] || resource == "*"
	}
	errs = append(errs, field.InvalidIf(len(resources) > 1 && slices.Contains(resources, "*/*"), at, resources,
		"if '*/*' is present, must not specify other resources")...)
	return append(errs, field.InvalidIf(slices.Contains(resources, "*") && plain, at, resources,
		"if '*' is present, must not specify other resources without subresources")...)
}
