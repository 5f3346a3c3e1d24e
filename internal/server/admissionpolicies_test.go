package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const (
	adminPolicies   = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	adminBindings   = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	adminConfigMaps = "/api/v1/namespaces/default/configmaps"
)

// policyBody returns a policy about creates and updates of ConfigMaps; more are further members of its spec.
func policyBody(name, more string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],` +
		`"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["configmaps"]}]},` + more + `}}`
}

// bindingBody returns a binding of the policy of the same name.
func bindingBody(name, actions, more string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{"policyName":"` + name + `","validationActions":[` + actions + `]` +
		more + `}}`
}

// TestAcknowledgedPoliciesJudgeTheNextWrite creates and removes bindings; each write in between has to be judged by them.
func TestAcknowledgedPoliciesJudgeTheNextWrite(t *testing.T) {
	s := start(t, testConfig(t))
	created, refused := http.StatusCreated, http.StatusUnprocessableEntity
	for i := range 30 {
		runAdmissionSteps(t, s, []admissionStep{
			{"POST", adminPolicies, policyBody("p", fmt.Sprintf(`"validations":[{"expression":"object.metadata.name == 'a%d'"}]`, i)),
				created, ""},
			{"POST", adminConfigMaps + "?dryRun=All", `{"metadata":{"name":"b"}}`, created, ""},
			{"POST", adminBindings, bindingBody("p", `"Deny"`, ""), created, ""},
			{"POST", adminConfigMaps + "?dryRun=All", `{"metadata":{"name":"b"}}`, refused,
				`"message":"configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: ` +
					fmt.Sprintf(`failed expression: object.metadata.name == 'a%d'"`, i)},
			{"POST", adminConfigMaps + "?dryRun=All", fmt.Sprintf(`{"metadata":{"name":"a%d"}}`, i), created, ""},
			{"PATCH", adminPolicies + "/p", `{"spec":{"validations":[{"expression":"true"}]}}`, http.StatusOK, ""},
			{"POST", adminConfigMaps + "?dryRun=All", `{"metadata":{"name":"b"}}`, created, ""},
			{"PATCH", adminPolicies + "/p", `{"spec":{"validations":[{"expression":"false"}]}}`, http.StatusOK, ""},
			{"POST", adminConfigMaps + "?dryRun=All", `{"metadata":{"name":"b"}}`, refused, "failed expression: false"},
			{"DELETE", adminBindings + "/p", "", http.StatusOK, ""},
			{"POST", adminConfigMaps + "?dryRun=All", `{"metadata":{"name":"b"}}`, created, ""},
			{"DELETE", adminPolicies + "/p", "", http.StatusOK, ""},
		})
	}
}

// TestPolicyParameters evaluates one policy with parameters of a custom kind, by name and by selector.
func TestPolicyParameters(t *testing.T) {
	s := start(t, testConfig(t))
	created, refused := http.StatusCreated, http.StatusUnprocessableEntity
	const limits = "/apis/example.com/v1/namespaces/default/limits"
	dry := adminConfigMaps + "?dryRun=All"
	two := `{"metadata":{"name":"b"},"data":{"a":"1","b":"2"}}`
	runAdmissionSteps(t, s, []admissionStep{
		{"POST", adminPolicies, policyBody("p", `"paramKind":{"apiVersion":"example.com/v1","kind":"Limit"},`+
			`"validations":[{"expression":"object.data.size() <= params.most","messageExpression":`+
			`"'at most ' + string(params.most)","reason":"Forbidden"}]`), created, ""},
		{"POST", adminBindings, bindingBody("p", `"Deny"`, `,"paramRef":{"name":"l","parameterNotFoundAction":"Deny"}`),
			created, ""},
		{"POST", dry, two, refused, "failed to configure policy: failed to find resource referenced by paramKind: " +
			"'example.com/v1, Kind=Limit'"},
		{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"limits.example.com"},` +
			`"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"limits","singular":"limit","kind":"Limit",` +
			`"listKind":"LimitList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` +
			`{"type":"object","properties":{"most":{"type":"integer"}}}}}]}}`, created, ""},
	})
	awaitServed(t, s, limits)
	runAdmissionSteps(t, s, []admissionStep{
		{"POST", dry, two, refused, "failed to configure binding: no params found for policy binding with `Deny` " +
			"parameterNotFoundAction"},
		{"POST", limits, `{"apiVersion":"example.com/v1","kind":"Limit","metadata":{"name":"l"},"most":1}`, created, ""},
		{"POST", dry, two, http.StatusForbidden, "denied request: at most 1"},
		{"PATCH", limits + "/l", `{"most":2,"metadata":{"labels":{"use":"yes"}}}`, http.StatusOK, ""},
		{"POST", dry, two, created, ""},
		{"DELETE", adminBindings + "/p", "", http.StatusOK, ""},
		{"POST", adminBindings, bindingBody("p", `"Deny"`,
			`,"paramRef":{"selector":{"matchLabels":{"use":"yes"}},"parameterNotFoundAction":"Allow"}`), created, ""},
		{"POST", dry, two, created, ""},
		{"POST", limits, `{"apiVersion":"example.com/v1","kind":"Limit","metadata":{"name":"k","labels":{"use":"yes"}},"most":0}`,
			created, ""},
		{"POST", dry, two, http.StatusForbidden, "denied request: at most 0"},
		{"DELETE", limits + "/k", "", http.StatusOK, ""},
		{"DELETE", limits + "/l", "", http.StatusOK, ""},
		{"POST", dry, two, created, ""},
	})
}

// TestPoliciesSeeTheVersionThatMatched writes a custom resource in another version than a policy names.
func TestPoliciesSeeTheVersionThatMatched(t *testing.T) {
	s := start(t, testConfig(t))
	version := func(name, storage string) string {
		return `{"name":"` + name + `","served":true,"storage":` + storage + `,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	}
	runAdmissionSteps(t, s, []admissionStep{
		{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.example.com"},` +
			`"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"as","singular":"a","kind":"A",` +
			`"listKind":"AList"},"versions":[` + version("v1", "true") + `,` + version("v2", "false") + `]}}`,
			http.StatusCreated, ""},
		{"POST", adminPolicies, `{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":` +
			`["example.com"],"apiVersions":["v2"],"operations":["*"],"resources":["as"]}]},"validations":[{"expression":` +
			`"false","messageExpression":"'seen as ' + object.apiVersion + ', asked for ' + request.requestKind.version"}]}}`,
			http.StatusCreated, ""},
		{"POST", adminBindings, bindingBody("p", `"Deny"`, ""), http.StatusCreated, ""},
	})
	awaitServed(t, s, "/apis/example.com/v1/as")
	runAdmissionSteps(t, s, []admissionStep{
		{"POST", "/apis/example.com/v1/as", `{"apiVersion":"example.com/v1","kind":"A","metadata":{"name":"a"}}`,
			http.StatusUnprocessableEntity, "seen as example.com/v2, asked for v1"},
		{"POST", "/apis/example.com/v2/as", `{"apiVersion":"example.com/v2","kind":"A","metadata":{"name":"a"}}`,
			http.StatusUnprocessableEntity, "seen as example.com/v2, asked for v2"},
	})
}

// awaitServed waits until a resource is served.
func awaitServed(t *testing.T, s *Server, path string) {
	t.Helper()
	const tries = 10000
	for range tries {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer admintoken")
		w := httptest.NewRecorder()
		s.http.server.Handler.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			return
		}
	}
	t.Fatalf("%s is not served", path)
}

// TestPolicyCosts checks that expressions are bounded, one by one and together.
func TestPolicyCosts(t *testing.T) {
	s := start(t, testConfig(t))
	data := `{"metadata":{"name":"b"},"data":{` + strings.TrimSuffix(strings.Repeat(`"%k":"v",`, 400), ",") + `}}`
	for i := range 400 {
		data = strings.Replace(data, "%k", fmt.Sprint("k", i), 1)
	}
	const cubic = "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c != '')))"
	const square = "object.data.all(a, object.data.all(b, a + b != ''))"
	steps := []admissionStep{
		{"POST", adminPolicies, policyBody("p", `"validations":[{"expression":"`+cubic+`"}]`), http.StatusCreated, ""},
		{"POST", adminBindings, bindingBody("p", `"Deny"`, ""), http.StatusCreated, ""},
		{"POST", adminConfigMaps, data, http.StatusUnprocessableEntity, "operation cancelled: actual cost limit exceeded"},
		{"DELETE", adminPolicies + "/p", "", http.StatusOK, ""},
		{"POST", adminPolicies, policyBody("p", `"validations":[`+
			strings.TrimSuffix(strings.Repeat(`{"expression":"`+square+`"},`, 20), ",")+`]`), http.StatusCreated, ""},
		{"POST", adminConfigMaps, data, http.StatusUnprocessableEntity,
			"validation failed due to running out of cost budget, no further validation rules will be run"},
	}
	if testing.Short() { // the race detector makes so many evaluations last longer than a request may
		steps = steps[:4]
	}
	runAdmissionSteps(t, s, steps)
}
