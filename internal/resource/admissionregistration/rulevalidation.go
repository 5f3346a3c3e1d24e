package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validateMatchResources validates which writes a policy or a binding concerns.
func validateMatchResources(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	errs := validateChoice(m.MatchPolicy, at.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)
	for _, s := range []struct {
		name     string
		selector *metav1.LabelSelector
	}{{"namespaceSelector", m.NamespaceSelector}, {"objectSelector", m.ObjectSelector}} {
		if s.selector == nil {
			errs = append(errs, field.Required(at.Child(s.name), ""))
		} else {
			errs = append(errs, validateSelector(s.selector, at.Child(s.name))...)
		}
	}
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at.K8s())
}

// validatePathSegment validates the name of an object, which is a part of a path.
func validatePathSegment(name string, at *field.Path) (errs field.ErrorList) {
	for _, why := range path.IsValidPathSegmentName(name) {
		errs = append(errs, field.Invalid(at, name, why))
	}
	return errs
}

func validateNamedRule(r *admissionv1.NamedRuleWithOperations, at *field.Path) (errs field.ErrorList) {
	for i, name := range r.ResourceNames {
		errs = append(errs, validatePathSegment(name, at.Child("resourceNames").Index(i))...)
		if slices.Contains(r.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(at.Child("resourceNames").Index(i), name))
		}
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
		if version == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
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
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	}
	if slices.Contains(resources, "*") && plain {
		errs = append(errs, field.Invalid(at, resources,
			"if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
