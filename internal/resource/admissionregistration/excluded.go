package admissionregistration

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// ReviewResources returns the resources whose POST stores nothing and only asks who a user is or what a user may do. No
// policy applies to them, and with the gate ExcludeAdmissionWebhookVirtualResources no webhook, because a wrong one could stop
// the cluster.
func ReviewResources() []schema.GroupResource {
	of := func(group, resource string) schema.GroupResource {
		return schema.GroupResource{Group: group, Resource: resource}
	}
	return []schema.GroupResource{
		of(authenticationv1.GroupName, "selfsubjectreviews"), of(authenticationv1.GroupName, "tokenreviews"),
		of(authorizationv1.GroupName, "localsubjectaccessreviews"), of(authorizationv1.GroupName, "selfsubjectaccessreviews"),
		of(authorizationv1.GroupName, "selfsubjectrulesreviews"), of(authorizationv1.GroupName, "subjectaccessreviews"),
	}
}

// warnExcluded warns of the rules of webhooks that name a resource of ReviewResources. A rule with a wildcard names none.
func warnExcluded(hooks []hook) []string {
	reviews := ReviewResources()
	var warnings []string
	for i, h := range hooks {
		for j := range h.rules {
			path := field.NewPath("webhooks").Index(i).Child("rules").Index(j)
			for _, r := range named(&h.rules[j]) {
				if slices.Contains(reviews, r) {
					warnings = append(warnings,
						fmt.Sprintf("%s: %s is excluded from admission webhooks; this rule will have no effect", path, r))
				}
			}
		}
	}
	return warnings
}

// named returns the resources that a rule names, each once.
// For a rule with a wildcard the result is nil. Such a rule does not warn, because it also matches resources that
// webhooks are called for.
func named(r *admissionv1.RuleWithOperations) []schema.GroupResource {
	if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
		return nil
	}
	var out []schema.GroupResource
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			if one := (schema.GroupResource{Group: group, Resource: resource}); !slices.Contains(out, one) {
				out = append(out, one)
			}
		}
	}
	return out
}
