package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	path := field.NewPath("rules")
	defer path.Free()
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, validateRule(&rules[i], namespaced, path.Index(i))...)
	}
	return errs
}

// validateRule validates one rule. Verbs, groups and resources may be any text, because an aggregated API or a
// custom resource may come later. The core group is the entry "", so an empty list of groups is a mistake and
// refused. URLs such as /healthz have no namespace, so a Role cannot allow them.
func validateRule(r *rbacv1.PolicyRule, namespaced bool, path *field.Path) field.ErrorList {
	errs := field.RequiredIf(len(r.Verbs) == 0, path.Child("verbs"), "")
	if len(r.NonResourceURLs) > 0 {
		at := path.Child("nonResourceURLs")
		errs = append(errs, field.InvalidIf(namespaced, at, r.NonResourceURLs,
			"namespaced rules cannot apply to non-resource URLs")...)
		return append(errs, field.InvalidIf(len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0, at,
			r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")...)
	}
	errs = append(errs, field.RequiredIf(len(r.APIGroups) == 0, path.Child("apiGroups"),
		"resource rules must supply at least one api group")...)
	return append(errs, field.RequiredIf(len(r.Resources) == 0, path.Child("resources"),
		"resource rules must supply at least one resource")...)
}

// validateClusterRole validates a ClusterRole. With an aggregationRule, a controller overwrites the rules by
// those of the selected roles. An invalid selector gets a second error without details, as in kube-apiserver.
func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	errs = append(errs, field.RequiredIf(len(r.AggregationRule.ClusterRoleSelectors) == 0, path,
		"at least one clusterRoleSelector required if aggregationRule is non-nil")...)
	for i := range r.AggregationRule.ClusterRoleSelectors {
		s := &r.AggregationRule.ClusterRoleSelectors[i]
		errs = append(errs, field.LabelSelector(path.Index(i), s)...)
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), nil, "invalid label selector."))
		}
	}
	return errs
}

// validateBinding validates roleRef and subjects. In a RoleBinding, the namespace of a service
// account is optional.
func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	errs := field.OneOf(at.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName)
	errs = append(errs, field.OneOf(at.Child("kind"), ref.Kind, kinds...)...)
	errs = append(errs, field.NotEmptyAnd(at.Child("name"), ref.Name, field.PathSegment)...)
	path := field.NewPath("subjects")
	defer path.Free()
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], namespaced, path.Index(i))...)
	}
	return errs
}

// validateSubject validates who gets a role. Names of users and groups are any text, because they come from
// authenticators. The role and the subjects do not have to exist.
func validateSubject(s *rbacv1.Subject, namespaced bool, path *field.Path) field.ErrorList {
	errs := field.NotEmpty(path.Child("name"), s.Name)
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, field.Messages(path.Child("name"), s.Name,
				apivalidation.ValidateServiceAccountName(s.Name, false))...)
		}
		errs = append(errs, field.OneOf(path.Child("apiGroup"), s.APIGroup, "")...)
		errs = append(errs, field.RequiredIf(s.Namespace == "" && !namespaced, path.Child("namespace"), "")...)
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, field.OneOf(path.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)...)
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), s.Kind,
			[]string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}
