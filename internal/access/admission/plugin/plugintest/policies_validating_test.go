package plugintest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/effort"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const (
	policiesPath         = apitest.AdmissionPath + "validatingadmissionpolicies"
	bindingsPath         = apitest.AdmissionPath + "validatingadmissionpolicybindings"
	mutatingPath         = apitest.MutatingPoliciesPath
	mutatingBindingsPath = apitest.MutatingBindingsPath
	configMapsPath       = apitest.ConfigMapsPath
	deploymentsPath      = "/apis/apps/v1/namespaces/default/deployments"
)

var (
	apply, patch                   = apitest.ApplyMutation, apitest.JSONPatchMutation
	createMutating, deleteMutating = apitest.CreateMutatingPolicy, apitest.DeleteMutatingPolicy
	mutatingBinding                = apitest.MutatingBinding
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

// TestAcknowledgedPoliciesJudgeTheNextWrite creates and removes bindings. Each change has to take effect with the
// next write.
func TestAcknowledgedPoliciesJudgeTheNextWrite(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	created, refused := http.StatusCreated, http.StatusUnprocessableEntity
	for i := range 30 {
		s.Run([]apitest.Step{
			{"POST", policiesPath, policyBody("p", fmt.Sprintf(`"validations":[{"expression":"object.metadata.name == 'a%d'"}]`, i)),
				created, ""},
			{"POST", configMapsPath + "?dryRun=All", `{"metadata":{"name":"b"}}`, created, ""},
			{"POST", bindingsPath, bindingBody("p", `"Deny"`, ""), created, ""},
			{"POST", configMapsPath + "?dryRun=All", `{"metadata":{"name":"b"}}`, refused,
				`"message":"configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: ` +
					fmt.Sprintf(`failed expression: object.metadata.name == 'a%d'"`, i)},
			{"POST", configMapsPath + "?dryRun=All", fmt.Sprintf(`{"metadata":{"name":"a%d"}}`, i), created, ""},
			{"PATCH", policiesPath + "/p", `{"spec":{"validations":[{"expression":"true"}]}}`, http.StatusOK, ""},
			{"POST", configMapsPath + "?dryRun=All", `{"metadata":{"name":"b"}}`, created, ""},
			{"PATCH", policiesPath + "/p", `{"spec":{"validations":[{"expression":"false"}]}}`, http.StatusOK, ""},
			{"POST", configMapsPath + "?dryRun=All", `{"metadata":{"name":"b"}}`, refused, "failed expression: false"},
			{"DELETE", bindingsPath + "/p", "", http.StatusOK, ""},
			{"POST", configMapsPath + "?dryRun=All", `{"metadata":{"name":"b"}}`, created, ""},
			{"DELETE", policiesPath + "/p", "", http.StatusOK, ""},
		})
	}
}

// TestPolicyParameters evaluates one policy with parameters of a custom kind, by name and by selector.
func TestPolicyParameters(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	created, refused := http.StatusCreated, http.StatusUnprocessableEntity
	const limits = "/apis/example.com/v1/namespaces/default/limits"
	dry := configMapsPath + "?dryRun=All"
	two := `{"metadata":{"name":"b"},"data":{"a":"1","b":"2"}}`
	s.Run([]apitest.Step{
		{"POST", policiesPath, policyBody("p", `"paramKind":{"apiVersion":"example.com/v1","kind":"Limit"},`+
			`"validations":[{"expression":"object.data.size() <= params.most","messageExpression":`+
			`"'at most ' + string(params.most)","reason":"Forbidden"}]`), created, ""},
		{"POST", bindingsPath, bindingBody("p", `"Deny"`, `,"paramRef":{"name":"l","parameterNotFoundAction":"Deny"}`),
			created, ""},
		{"POST", dry, two, refused, "failed to configure policy: failed to find resource referenced by paramKind: " +
			"'example.com/v1, Kind=Limit'"},
		{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"limits.example.com"},` +
			`"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"limits","singular":"limit","kind":"Limit",` +
			`"listKind":"LimitList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` +
			`{"type":"object","properties":{"most":{"type":"integer"}}}}}]}}`, created, ""},
	})
	s.Served(limits)
	s.Run([]apitest.Step{
		{"POST", dry, two, refused, "failed to configure binding: no params found for policy binding with `Deny` " +
			"parameterNotFoundAction"},
		{"POST", limits, `{"apiVersion":"example.com/v1","kind":"Limit","metadata":{"name":"l"},"most":1}`, created, ""},
		{"POST", dry, two, http.StatusForbidden, "denied request: at most 1"},
		{"PATCH", limits + "/l", `{"most":2,"metadata":{"labels":{"use":"yes"}}}`, http.StatusOK, ""},
		{"POST", dry, two, created, ""},
		{"DELETE", bindingsPath + "/p", "", http.StatusOK, ""},
		{"POST", bindingsPath, bindingBody("p", `"Deny"`,
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
	s := servertest.Start(t, servertest.Default())
	version := func(name, storage string) string {
		return `{"name":"` + name + `","served":true,"storage":` + storage + `,"schema":{"openAPIV3Schema":{"type":"object"}}}`
	}
	s.Run([]apitest.Step{
		{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.example.com"},` +
			`"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"as","singular":"a","kind":"A",` +
			`"listKind":"AList"},"versions":[` + version("v1", "true") + `,` + version("v2", "false") + `]}}`,
			http.StatusCreated, ""},
		{"POST", policiesPath, `{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":` +
			`["example.com"],"apiVersions":["v2"],"operations":["*"],"resources":["as"]}]},"validations":[{"expression":` +
			`"false","messageExpression":"'seen as ' + object.apiVersion + ', asked for ' + request.requestKind.version"}]}}`,
			http.StatusCreated, ""},
		{"POST", bindingsPath, bindingBody("p", `"Deny"`, ""), http.StatusCreated, ""},
	})
	s.Served("/apis/example.com/v1/as")
	s.Run([]apitest.Step{
		{"POST", "/apis/example.com/v1/as", `{"apiVersion":"example.com/v1","kind":"A","metadata":{"name":"a"}}`,
			http.StatusUnprocessableEntity, "seen as example.com/v2, asked for v1"},
		{"POST", "/apis/example.com/v2/as", `{"apiVersion":"example.com/v2","kind":"A","metadata":{"name":"a"}}`,
			http.StatusUnprocessableEntity, "seen as example.com/v2, asked for v2"},
	})
}

// TestPolicyCosts checks that the cost of expressions is bounded, for each one and for all together.
func TestPolicyCosts(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	data := `{"metadata":{"name":"b"},"data":{` + strings.TrimSuffix(strings.Repeat(`"%k":"v",`, 400), ",") + `}}`
	for i := range 400 {
		data = strings.Replace(data, "%k", fmt.Sprint("k", i), 1)
	}
	const cubic = "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c != '')))"
	const square = "object.data.all(a, object.data.all(b, a + b != ''))"
	steps := []apitest.Step{
		{"POST", policiesPath, policyBody("p", `"validations":[{"expression":"`+cubic+`"}]`), http.StatusCreated, ""},
		{"POST", bindingsPath, bindingBody("p", `"Deny"`, ""), http.StatusCreated, ""},
		{"POST", configMapsPath, data, http.StatusUnprocessableEntity, "operation cancelled: actual cost limit exceeded"},
		{"DELETE", policiesPath + "/p", "", http.StatusOK, ""},
		{"POST", policiesPath, policyBody("p", `"validations":[`+
			strings.TrimSuffix(strings.Repeat(`{"expression":"`+square+`"},`, 20), ",")+`]`), http.StatusCreated, ""},
		{"POST", configMapsPath, data, http.StatusUnprocessableEntity,
			"validation failed due to running out of cost budget, no further validation rules will be run"},
	}
	if !effort.Full() { // so many evaluations take 15 s; with the race detector, longer than a request may
		steps = steps[:4]
	}
	s.Run(steps)
}
