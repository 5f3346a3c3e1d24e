package apitest

import (
	"fmt"
	"net/http"
	"strings"
)

// The paths of mutating policies and of their bindings.
const (
	MutatingPoliciesPath = AdmissionPath + "mutatingadmissionpolicies"
	MutatingBindingsPath = AdmissionPath + "mutatingadmissionpolicybindings"
)

// ApplyMutation returns a mutation of the type ApplyConfiguration.
func ApplyMutation(expression string) string {
	return fmt.Sprintf(`{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":%q}}`, expression)
}

// JSONPatchMutation returns a mutation of the type JSONPatch.
func JSONPatchMutation(expression string) string {
	return fmt.Sprintf(`{"patchType":"JSONPatch","jsonPatch":{"expression":%q}}`, expression)
}

// CreateMutatingPolicy returns the steps that create a policy for creates and updates of a resource, and its
// binding. more has further JSON members of the policy's spec. The default of reinvocationPolicy is Never.
func CreateMutatingPolicy(name, group, resource, mutations, more string) []Step {
	if !strings.Contains(more, "reinvocationPolicy") {
		more += `,"reinvocationPolicy":"Never"`
	}
	policy := `{"metadata":{"name":"` + name + `"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["` + group +
		`"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["` + resource + `"]}]},"mutations":[` +
		mutations + `]` + more + `}}`
	return []Step{
		{"POST", MutatingPoliciesPath, policy, http.StatusCreated, ""},
		{"POST", MutatingBindingsPath, MutatingBinding(name, ""), http.StatusCreated, ""},
	}
}

// MutatingBinding returns a binding of the policy of the same name; more are further members of its spec.
func MutatingBinding(name, more string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"policyName":"` + name + `"` + more + `}}`
}

// DeleteMutatingPolicy returns the steps that delete a policy and its binding.
func DeleteMutatingPolicy(name string) []Step {
	return []Step{
		{"DELETE", MutatingBindingsPath + "/" + name, "", http.StatusOK, ""},
		{"DELETE", MutatingPoliciesPath + "/" + name, "", http.StatusOK, ""},
	}
}
