package policystatus

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxKinds limits the kinds of one rule; further kinds and rules are not checked.
const maxKinds = 10

// kindsOf returns the kinds for which a policy is checked, sorted by group, version and name: the kinds of the
// resources in its rules. A rule with a wildcard for groups or versions is ignored, and so are wildcards and
// subresources among its resources.
func (c *Controller) kindsOf(policy *admissionregistrationv1.ValidatingAdmissionPolicy) []schema.GroupVersionKind {
	if policy.Spec.MatchConstraints == nil {
		return nil
	}
	var kinds []schema.GroupVersionKind
	for i := range policy.Spec.MatchConstraints.ResourceRules {
		found := c.kindsOfRule(&policy.Spec.MatchConstraints.ResourceRules[i].Rule)
		kinds = append(kinds, found[:min(len(found), maxKinds)]...)
		if len(found) >= maxKinds {
			break
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.Compact(kinds)
}

func (c *Controller) kindsOfRule(rule *admissionregistrationv1.Rule) []schema.GroupVersionKind {
	wildcard := func(s string) bool { return strings.Contains(s, "*") }
	if slices.ContainsFunc(rule.APIGroups, wildcard) || slices.ContainsFunc(rule.APIVersions, wildcard) {
		return nil
	}
	var kinds []schema.GroupVersionKind
	for _, group := range slices.Sorted(slices.Values(rule.APIGroups)) {
		for _, version := range slices.Sorted(slices.Values(rule.APIVersions)) {
			for _, resource := range slices.Sorted(slices.Values(rule.Resources)) {
				if !strings.ContainsAny(resource, "*/") {
					kinds = append(kinds, c.kindsOfResource(group, version, strings.ToLower(resource))...)
				}
			}
		}
	}
	return kinds
}

// kindsOfResource returns the kinds of a resource, which may be named in the singular. The empty group matches every
// group, as in the mapper that kube-controller-manager uses.
func (c *Controller) kindsOfResource(group, version, name string) []schema.GroupVersionKind {
	groups := []schema.GroupVersion{{Group: group, Version: version}}
	if group == "" {
		groups = c.Resources.GroupVersions()
	}
	var kinds []schema.GroupVersionKind
	for _, gv := range groups {
		if gv.Version != version {
			continue
		}
		for _, r := range c.Resources.Resources(gv) {
			if r.Announced || r.Describe == nil {
				continue
			}
			for _, entry := range r.Describe() {
				if !strings.Contains(entry.Name, "/") && (entry.Name == name || entry.SingularName == name) {
					kinds = append(kinds, gv.WithKind(entry.Kind))
				}
			}
		}
	}
	return kinds
}
