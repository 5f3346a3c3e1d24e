package plugintest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestWhatPoliciesExempt writes each resource that configures admission, and each review, under a policy that denies everything, a policy that
// labels everything, and a webhook that denies everything. Policies may protect the configurations of webhooks; everything else that
// configures admission is exempt, as in kube-apiserver, so that a wrong configuration can be removed.
func TestWhatPoliciesExempt(t *testing.T) {
	const (
		hook = `"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://127.0.0.1:1"},"sideEffects":"None",` +
			`"admissionReviewVersions":["v1"]}]`
		policy = `"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],` +
			`"resources":["nodes"]}]},`
		mutate = `"failurePolicy":"Fail","reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch",` +
			`"jsonPatch":{"expression":"[JSONPatch{op: \"test\", path: \"/a\", value: 1}]"}}]}`
		reviews = "/apis/authorization.k8s.io/v1/"
	)
	resources := []struct {
		path, body       string
		byPolicy, byHook bool // which of them apply
	}{
		{apitest.AdmissionPath + "validatingwebhookconfigurations", hook, true, false},
		{apitest.AdmissionPath + "mutatingwebhookconfigurations", hook, true, false},
		{policiesPath, policy + `"validations":[{"expression":"true"}]}`, false, false},
		{bindingsPath, `"spec":{"policyName":"x","validationActions":["Deny"]}`, false, false},
		{mutatingPath, policy + mutate, false, false},
		{mutatingBindingsPath, `"spec":{"policyName":"x"}`, false, false},
		{configMapsPath, `"data":{}`, true, true},
	}
	s, h := servertest.Start(t, servertest.Default()), apitest.NewWebhooks(t)
	for _, r := range resources {
		if a := s.Send("POST", r.path, `{"metadata":{"name":"before"},`+r.body+`}`); a.Status != http.StatusCreated {
			t.Fatalf("%s: %d %s", r.path, a.Status, a.Body)
		}
	}
	deny := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{}
	}
	const all = `"rules":[{"apiGroups":["admissionregistration.k8s.io","authorization.k8s.io",""],"apiVersions":["*"],` +
		`"operations":["*"],"resources":["*"]}]`
	constraints := `"matchConstraints":{` + strings.Replace(all, `"rules"`, `"resourceRules"`, 1) + `}`
	for _, c := range []struct {
		name       string
		begin, end func()
		applies    func(byPolicy, byHook bool) bool
	}{
		{"validating policy", func() {
			s.Run([]apitest.Step{
				{"POST", policiesPath, `{"metadata":{"name":"all"},"spec":{` + constraints + `,"validations":[{"expression":"false"}]}}`,
					http.StatusCreated, ""},
				{"POST", bindingsPath, bindingBody("all", `"Deny"`, ""), http.StatusCreated, ""},
			})
		}, func() { s.Send("DELETE", bindingsPath+"/all", ""); s.Send("DELETE", policiesPath+"/all", "") },
			func(byPolicy, _ bool) bool { return byPolicy }},
		{"webhook", func() {
			h.On("/deny", deny)
			before, rest, _ := strings.Cut(h.Configuration("ValidatingWebhookConfiguration", "all", "/deny", ""), `"rules":[{`)
			_, rest, _ = strings.Cut(rest, "}]")
			s.Create(apitest.AdmissionPath+"validatingwebhookconfigurations", before+all+rest)
		}, func() { s.Send("DELETE", apitest.AdmissionPath+"validatingwebhookconfigurations/all", "") },
			func(_, byHook bool) bool { return byHook }},
	} {
		c.begin()
		for _, r := range resources {
			for request, body := range map[string]string{
				"POST " + r.path + "?dryRun=All":          `{"metadata":{"name":"new"},` + r.body + `}`,
				"PATCH " + r.path + "/before?dryRun=All":  `{"metadata":{"labels":{"a":"b"}}}`,
				"DELETE " + r.path + "/before?dryRun=All": "",
			} {
				method, path, _ := strings.Cut(request, " ")
				if a := s.Send(method, path, body); a.Status >= 400 != c.applies(r.byPolicy, r.byHook) {
					t.Errorf("%s: %s: %d %.300s", c.name, request, a.Status, a.Body)
				}
			}
		}
		a := s.Send("POST", reviews+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`)
		if a.Status != http.StatusCreated {
			t.Errorf("%s: a review: %d %.300s", c.name, a.Status, a.Body)
		}
		c.end()
	}

	s.Run(createMutating("all", "admissionregistration.k8s.io", "*",
		patch(`[JSONPatch{op: "add", path: "/metadata/labels", value: {"by": "policy"}}]`), ""))
	for _, r := range resources[:len(resources)-1] {
		var created struct {
			Metadata struct{ Labels map[string]string }
		}
		a := s.Send("POST", r.path+"?dryRun=All", `{"metadata":{"name":"new"},`+r.body+`}`)
		if err := json.Unmarshal([]byte(a.Body), &created); err != nil || (created.Metadata.Labels["by"] == "policy") != r.byPolicy {
			t.Errorf("mutating policy: %s: %d %.300s", r.path, a.Status, a.Body)
		}
	}
}
