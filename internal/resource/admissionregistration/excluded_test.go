package admissionregistration

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// TestExcludedRulesAreReported has the warnings of kube-apiserver 1.37.
func TestExcludedRulesAreReported(t *testing.T) {
	rule := func(groups, resources []string) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{Rule: admissionv1.Rule{APIGroups: groups, Resources: resources}}
	}
	got := warnExcluded([]hook{
		{rules: []admissionv1.RuleWithOperations{
			rule([]string{"*"}, []string{"tokenreviews"}), rule([]string{"authentication.k8s.io"}, []string{"tokenreviews", "*"}),
		}},
		{rules: []admissionv1.RuleWithOperations{
			rule([]string{""}, []string{"tokenreviews"}),
			rule([]string{"authentication.k8s.io", "authentication.k8s.io"}, []string{"tokenreviews", "x", "selfsubjectreviews"}),
		}},
	})
	want := []string{
		"webhooks[1].rules[1]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect",
		"webhooks[1].rules[1]: selfsubjectreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no " +
			"effect",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
