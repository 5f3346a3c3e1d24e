package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateMatchResources validates which writes a policy or a binding concerns.
func validateMatchResources(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	errs := validateChoice(m.MatchPolicy, at.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)
	errs = append(errs, requireSelector(at.Child("namespaceSelector"), m.NamespaceSelector)...)
	errs = append(errs, requireSelector(at.Child("objectSelector"), m.ObjectSelector)...)
	errs = append(errs, field.Each(at.Child("resourceRules"), m.ResourceRules, validateNamedRule)...)
	return append(errs, field.Each(at.Child("excludeResourceRules"), m.ExcludeResourceRules, validateNamedRule)...)
}

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
	errs := validateList(r.Operations, at.Child("operations"), "operations")
	for i := range r.Operations {
		errs = append(errs, validateChoice(&r.Operations[i], at.Child("operations").Index(i), admissionv1.OperationAll,
			admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update)...)
	}
	errs = append(errs, validateList(r.APIGroups, at.Child("apiGroups"), "API groups")...)
	errs = append(errs, validateList(r.APIVersions, at.Child("apiVersions"), "API versions")...)
	for i, version := range r.APIVersions {
		errs = append(errs, field.NotEmpty(at.Child("apiVersions").Index(i), version)...)
	}
	errs = append(errs, validateResources(r.Resources, at.Child("resources"))...)
	if r.Scope != nil {
		errs = append(errs, validateChoice(r.Scope, at.Child("scope"), admissionv1.AllScopes, admissionv1.ClusterScope,
			admissionv1.NamespacedScope)...)
	}
	return errs
}

// validateList validates a list that has to have entries, and no others beside "*".
func validateList[T ~string](list []T, at *field.Path, what string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(at, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

// validateResources validates resources and subresources, such as pods, pods/status, pods/*, */scale, * and */*. The
// checks depend on the order of the list, as those of kube-apiserver do.
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
