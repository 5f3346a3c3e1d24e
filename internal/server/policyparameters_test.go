package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPoliciesShowNoParametersThatTheirAuthorsMayNotRead creates policies and bindings as a user who may write them, but may
// read ConfigMaps alone. A policy could show the content of its parameters in messages and mutations.
func TestPoliciesShowNoParametersThatTheirAuthorsMayNotRead(t *testing.T) {
	s := start(t, testConfig(t))
	runAdmissionSteps(t, s, []admissionStep{
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
		return mutatingSteps(name, "", "configmaps", apply("Object{}"), more)[0].body
	}
	const secretKind = `spec.paramKind: Forbidden: ` + user + ` must have \"get\" permission on all objects of the ` +
		`referenced paramKind (kind=Secret, apiVersion=v1)`
	const allow = `,"parameterNotFoundAction":"Allow"}`
	const tries = 10000
	for i := 0; requestAs(s, "u", admissionStep{"GET", adminMutatingPolicies, "", 0, ""}).Code != http.StatusOK; i++ {
		if i == tries {
			t.Fatal("the role of the user has no effect")
		}
	}
	runStepsAs(t, s, "u", []admissionStep{
		{"POST", adminMutatingPolicies, mutating("a", ""), http.StatusCreated, ""},
		{"POST", adminMutatingPolicies, mutating("b", kind("ConfigMap")), http.StatusCreated, ""},
		{"POST", adminMutatingPolicies, mutating("c", kind("Secret")), refused, secretKind},
		{"PATCH", adminMutatingPolicies + "/b", `{"spec":{"paramKind":{"kind":"Secret"}}}`, refused, secretKind},
		{"PATCH", adminMutatingPolicies + "/b", `{"metadata":{"labels":{"a":"b"}}}`, http.StatusOK, ""},
		{"POST", adminPolicies, policyBody("d", `"validations":[{"expression":"true"}]`+kind("Secret")), refused, secretKind},
	})
	runAdmissionSteps(t, s, []admissionStep{
		{"POST", adminMutatingPolicies, mutating("c", kind("Secret")), http.StatusCreated, ""},
		{"POST", adminMutatingPolicies, mutating("e", kind("Nothing")), http.StatusCreated, ""},
		{"POST", adminPolicies, policyBody("d", `"validations":[{"expression":"true"}]`+kind("Secret")), http.StatusCreated, ""},
	})
	runStepsAs(t, s, "u", []admissionStep{
		{"POST", adminMutatingBindings, mutatingBinding("b", `,"paramRef":{"name":"x","namespace":"y"`+allow), http.StatusCreated, ""},
		{"PATCH", adminMutatingPolicies + "/c", `{"metadata":{"labels":{"a":"b"}}}`, http.StatusOK, ""},
		{"POST", adminMutatingBindings, mutatingBinding("c", `,"paramRef":{"name":"x"`+allow), refused, `spec.paramRef: Forbidden: ` +
			`user get does not have \"` + strings.TrimPrefix(user, "user ") + `\" permission on the object referenced by paramRef`},
		{"POST", adminMutatingBindings, mutatingBinding("c", `,"paramRef":{"selector":{}`+allow), refused,
			`user list does not have `},
		{"POST", adminMutatingBindings, mutatingBinding("none", `,"paramRef":{"name":"x"`+allow), refused,
			`unable to get policy none to determine minimum required permissions and ` + user +
				` does not have \"get\" permission for all groups, versions and resources`},
		{"POST", adminMutatingBindings, mutatingBinding("e", `,"paramRef":{"name":"x"`+allow), refused,
			`unable to resolve paramKind \u0026{v1 Nothing} to determine`},
		{"POST", adminBindings, bindingBody("d", `"Deny"`, `,"paramRef":{"name":"x"`+allow), refused,
			` does not have \"get\" permission on the object referenced by paramRef`},
		{"POST", adminMutatingBindings, mutatingBinding("c", ""), http.StatusCreated, ""},
	})
}

// runStepsAs sends the requests of a user.
func runStepsAs(t *testing.T, s *Server, user string, steps []admissionStep) {
	t.Helper()
	for _, step := range steps {
		w := requestAs(s, user, step)
		if w.Code != step.code || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%s %s %s: %d %s\nwant %d %s", step.method, step.path, step.body, w.Code, w.Body, step.code, step.want)
		}
	}
}

// requestAs sends the request of a user.
func requestAs(s *Server, user string, step admissionStep) *httptest.ResponseRecorder {
	r := httptest.NewRequest(step.method, step.path, strings.NewReader(step.body))
	r.Header.Set("Authorization", "Bearer admintoken")
	r.Header.Set("Impersonate-User", user)
	r.Header.Set("Content-Type", "application/json")
	if step.method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	w := httptest.NewRecorder()
	s.http.server.Handler.ServeHTTP(w, r)
	return w
}
