package plugintest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestPoliciesShowNoParametersThatTheirAuthorsMayNotRead creates policies and bindings as a user who may write
// these, but may read only ConfigMaps. A policy could show the content of its parameters in messages and
// mutations.
func TestPoliciesShowNoParametersThatTheirAuthorsMayNotRead(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	s.Run([]apitest.Step{
		{"POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"u"},"rules":[{"apiGroups":[` +
			`"admissionregistration.k8s.io"],"resources":["*"],"verbs":["*"]},{"apiGroups":[""],"resources":["configmaps"],` +
			`"verbs":["get"]}]}`, http.StatusCreated, ""},
		{"POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"u"},"roleRef":{"apiGroup":` +
			`"rbac.authorization.k8s.io","kind":"ClusterRole","name":"u"},"subjects":[{"kind":"User","name":"u"}]}`,
			http.StatusCreated, ""},
	})
	const user, refused = `user \u0026{u  [system:authenticated] map[]}`, http.StatusUnprocessableEntity
	kind := func(name string) string { return `,"paramKind":{"apiVersion":"v1","kind":"` + name + `"}` }
	mutating := func(name, more string) string {
		return createMutating(name, "", "configmaps", apply("Object{}"), more)[0].Body
	}
	const secretKind = `spec.paramKind: Forbidden: ` + user + ` must have \"get\" permission on all objects of the ` +
		`referenced paramKind (kind=Secret, apiVersion=v1)`
	const allow = `,"parameterNotFoundAction":"Allow"}`
	u := s.As("u")
	u.Served(mutatingPath)
	u.Run([]apitest.Step{
		{"POST", mutatingPath, mutating("a", ""), http.StatusCreated, ""},
		{"POST", mutatingPath, mutating("b", kind("ConfigMap")), http.StatusCreated, ""},
		{"POST", mutatingPath, mutating("c", kind("Secret")), refused, secretKind},
		{"PATCH", mutatingPath + "/b", `{"spec":{"paramKind":{"kind":"Secret"}}}`, refused, secretKind},
		{"PATCH", mutatingPath + "/b", `{"metadata":{"labels":{"a":"b"}}}`, http.StatusOK, ""},
		{"POST", policiesPath, policyBody("d", `"validations":[{"expression":"true"}]`+kind("Secret")), refused, secretKind},
	})
	s.Run([]apitest.Step{
		{"POST", mutatingPath, mutating("c", kind("Secret")), http.StatusCreated, ""},
		{"POST", mutatingPath, mutating("e", kind("Nothing")), http.StatusCreated, ""},
		{"POST", policiesPath, policyBody("d", `"validations":[{"expression":"true"}]`+kind("Secret")), http.StatusCreated, ""},
	})
	u.Run([]apitest.Step{
		{"POST", mutatingBindingsPath, mutatingBinding("b", `,"paramRef":{"name":"x","namespace":"y"`+allow), http.StatusCreated, ""},
		{"PATCH", mutatingPath + "/c", `{"metadata":{"labels":{"a":"b"}}}`, http.StatusOK, ""},
		{"POST", mutatingBindingsPath, mutatingBinding("c", `,"paramRef":{"name":"x"`+allow), refused, `spec.paramRef: Forbidden: ` +
			`user get does not have \"` + strings.TrimPrefix(user, "user ") + `\" permission on the object referenced by paramRef`},
		{"POST", mutatingBindingsPath, mutatingBinding("c", `,"paramRef":{"selector":{}`+allow), refused,
			`user list does not have `},
		{"POST", mutatingBindingsPath, mutatingBinding("none", `,"paramRef":{"name":"x"`+allow), refused,
			`unable to get policy none to determine minimum required permissions and ` + user +
				` does not have \"get\" permission for all groups, versions and resources`},
		{"POST", mutatingBindingsPath, mutatingBinding("e", `,"paramRef":{"name":"x"`+allow), refused,
			`unable to resolve paramKind \u0026{v1 Nothing} to determine`},
		{"POST", bindingsPath, bindingBody("d", `"Deny"`, `,"paramRef":{"name":"x"`+allow), refused,
			` does not have \"get\" permission on the object referenced by paramRef`},
		{"POST", mutatingBindingsPath, mutatingBinding("c", ""), http.StatusCreated, ""},
	})
}
