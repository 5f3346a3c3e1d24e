package core

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestResourceQuotaValidation compares errors with those that kube-apiserver was seen to answer.
func TestResourceQuotaValidation(t *testing.T) {
	hard := func(name corev1.ResourceName, q string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(q)}
	}
	selector := func(scope corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator, values ...string) *corev1.ScopeSelector {
		return &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: scope, Operator: operator, Values: values},
		}}
	}
	for _, c := range []struct {
		spec corev1.ResourceQuotaSpec
		want []string
	}{
		{corev1.ResourceQuotaSpec{Hard: hard("pods", "-1")},
			[]string{`spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0`}},
		{corev1.ResourceQuotaSpec{Hard: hard("pods", "1.5")},
			[]string{`spec.hard[pods]: Invalid value: "1500m": must be an integer`}},
		{corev1.ResourceQuotaSpec{Hard: hard("nonsense", "1")}, []string{
			`spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource type or fully qualified`,
			`spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource for quota`,
		}},
		{corev1.ResourceQuotaSpec{Hard: hard("limits.cpu", "1"), Scopes: []corev1.ResourceQuotaScope{"BestEffort"}},
			[]string{`spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`}},
		{corev1.ResourceQuotaSpec{Hard: hard("pods", "1"),
			Scopes: []corev1.ResourceQuotaScope{"BestEffort", "NotBestEffort"}},
			[]string{`spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes`}},
		{corev1.ResourceQuotaSpec{Hard: hard("pods", "1"), Scopes: []corev1.ResourceQuotaScope{"Nope"}},
			[]string{`spec.scopes: Invalid value: ["Nope"]: unsupported scope`}},
		{corev1.ResourceQuotaSpec{Hard: hard("pods", "1"), ScopeSelector: selector("PriorityClass", "In")}, []string{
			"spec.scopeSelector.matchExpressions.values: Required value: " +
				"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
		}},
		{corev1.ResourceQuotaSpec{Hard: hard("count/roles.rbac.authorization.k8s.io", "1")}, nil},
		{corev1.ResourceQuotaSpec{Hard: hard("pods", "1"), ScopeSelector: selector("PriorityClass", "In", "a")}, nil},
	} {
		var got []string
		for _, err := range validateResourceQuota(&corev1.ResourceQuota{Spec: c.spec}) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.spec, got, c.want)
		}
	}
}
