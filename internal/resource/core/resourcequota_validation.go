package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func validateResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateQuotaList(q.Spec.Hard, path.Child("hard"))
	errs = append(errs, validateQuotaScopes(&q.Spec, path.Child("scopes"))...)
	return append(errs, validateScopeSelector(&q.Spec, path.Child("scopeSelector", "matchExpressions"))...)
}

// validateResourceQuotaUpdate forbids changes of the scopes. Their order does not matter. The scope selector
// may change.
func validateResourceQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	return append(validateResourceQuota(q), field.InvalidIf(!sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)),
		field.NewPath("spec", "scopes"), q.Spec.Scopes, validation.FieldImmutableErrorMsg)...)
}

func validateResourceQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("status")
	return append(validateQuotaList(q.Status.Hard, path.Child("hard")),
		validateQuotaList(q.Status.Used, path.Child("used"))...)
}

// validateQuotaList validates the names and values of what a quota limits.
func validateQuotaList(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sortedKeys(list) {
		q, at := list[name], path.Key(string(name))
		errs = append(errs, ValidateResourceName(string(name), at)...)
		errs = append(errs, field.InvalidIf(!strings.Contains(string(name), "/") && !isQuotaResource(name), at, name,
			"must be a standard resource for quota")...)
		errs = append(errs, ValidateNonNegativeQuantity(at, q)...)
		if (isCounted(string(name)) || IsExtendedResource(string(name))) && q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
		}
	}
	return errs
}

// isQuotaResource reports whether the name is one that quotas limit and that has no prefix.
// Quotas limit requests.storage, the sum of all claims; storage is the name for a single volume.
func isQuotaResource(name corev1.ResourceName) bool {
	return name != corev1.ResourceStorage && slices.Contains(standardResources, string(name)) || isHugePages(name) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// validateQuotaScopes validates the list of scopes. The errors show the whole list and have its path, without
// an index.
func validateQuotaScopes(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range s.Scopes {
		errs = append(errs, field.InvalidIf(!isScope(scope), path, s.Scopes, "unsupported scope")...)
		for range limitsOutside(scope, s.Hard) {
			errs = append(errs, field.Invalid(path, s.Scopes, "unsupported scope applied to resource"))
		}
	}
	return append(errs, validateScopePairs(s, s.Scopes, path)...)
}

// validateScopePairs adds an error for each pair of scopes that have no pod in common.
func validateScopePairs(
	s *corev1.ResourceQuotaSpec, scopes []corev1.ResourceQuotaScope, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		errs = append(errs, field.InvalidIf(slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]), path,
			s.Scopes, "conflicting scopes")...)
	}
	return errs
}

// shownSelector is a scope selector as kube-apiserver's messages show it: with the names of the fields in Go.
type shownSelector struct{ MatchExpressions []shownRequirement }

type shownRequirement struct {
	ScopeName corev1.ResourceQuotaScope
	Operator  corev1.ScopeSelectorOperator
	Values    []string
}

// validateScopeSelector validates the selector of scopes. As in kube-apiserver, no path of an error has an index:
// it is the path of the list, or has the name of a field right after it, such as matchExpressions.operator.
func validateScopeSelector(s *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	if s.ScopeSelector == nil {
		return nil
	}
	var errs field.ErrorList
	var scopes []corev1.ResourceQuotaScope
	var shown shownSelector
	for _, r := range s.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		shown.MatchExpressions = append(shown.MatchExpressions, shownRequirement(r))
	}
	for i := range s.ScopeSelector.MatchExpressions {
		r := &s.ScopeSelector.MatchExpressions[i]
		errs = append(errs, field.InvalidIf(!isScope(r.ScopeName), path.Child("scopeName"), r.ScopeName,
			"unsupported scope")...)
		for range limitsOutside(r.ScopeName, s.Hard) {
			errs = append(errs, field.Invalid(path, shown, "unsupported scope applied to resource"))
		}
		errs = append(errs, validateScopeRequirement(r, path)...)
	}
	return append(errs, validateScopePairs(s, scopes, path)...)
}

// validateScopeRequirement validates the operator and its values. Only a priority class and a
// VolumeAttributesClass have names that values could select; the other scopes either hold for an object or not.
func validateScopeRequirement(r *corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	operator, values := path.Child("operator"), path.Child("values")
	errs = append(errs, field.InvalidIf(isScope(r.ScopeName) && r.ScopeName != corev1.ResourceQuotaScopePriorityClass &&
		r.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass && r.Operator != corev1.ScopeSelectorOpExists,
		operator, r.Operator,
		"must be 'Exists' when scope is any of "+
			"ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "+
			"ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")...)
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		errs = append(errs, field.RequiredIf(len(r.Values) == 0, values,
			"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")...)
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		errs = append(errs, field.InvalidIf(len(r.Values) > 0, values, r.Values,
			"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")...)
	default:
		errs = append(errs, field.Invalid(operator, r.Operator, "not a valid selector operator"))
	}
	return errs
}

func isScope(scope corev1.ResourceQuotaScope) bool {
	switch scope {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
		corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return true
	}
	return false
}

// limitsOutside returns the limits for objects that can never be in the scope. It looks only at names without a prefix.
func limitsOutside(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) []corev1.ResourceName {
	var can []corev1.ResourceName
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		can = []corev1.ResourceName{corev1.ResourcePods}
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		can = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
	default:
		can = []corev1.ResourceName{
			corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU,
			corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		}
	}
	return slices.DeleteFunc(sortedKeys(hard), func(name corev1.ResourceName) bool {
		return !isScope(scope) || !isQuotaResource(name) || slices.Contains(can, name)
	})
}

// quotaWarnings returns a warning for each resource of which the requests may be more than the limits.
// cpu and memory are other names of requests.cpu and requests.memory in a quota.
func quotaWarnings(q, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var out []string
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage,
	} {
		requests, limits := "requests."+name, "limits."+name
		request, requested := q.Spec.Hard[requests]
		if !requested && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			requests = name
			request, requested = q.Spec.Hard[requests]
		}
		if limit, limited := q.Spec.Hard[limits]; requested && limited && request.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)",
				requests, request.String(), limits, limit.String()))
		}
	}
	return out
}
