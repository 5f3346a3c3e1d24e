package plugintest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestPolicyConditionMetrics compares the metrics of the match conditions of policies with those of kube-apiserver
// 1.36.
func TestPolicyConditionMetrics(t *testing.T) {
	s := servertest.Start(t, servertest.Default())
	for name, condition := range map[string]string{"true": "true", "false": "false", "wrong": "object.nothing == 1"} {
		for kind, spec := range map[string]string{
			"Validating": `"failurePolicy":"Ignore","validations":[{"expression":"true"}]`,
			"Mutating": `"failurePolicy":"Ignore","reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch",
				"jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/data/b', value: 'c'}]"}}]`,
		} {
			if kind == "Mutating" && condition == "true" { // after a mutation all conditions would be evaluated again
				continue
			}
			name := strings.ToLower(kind) + "-" + name
			made := [2]string{fmt.Sprintf(`"kind":"%sAdmissionPolicy","metadata":{"name":%q},"spec":{%s,
				"matchConditions":[{"name":"c","expression":%q}],"matchConstraints":{
				"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}},
				"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}}`,
				kind, name, spec, condition)}
			made[1] = fmt.Sprintf(`"kind":"%sAdmissionPolicyBinding","metadata":{"name":%q},"spec":{"policyName":%q`, kind, name, name)
			if kind == "Validating" {
				made[1] += `,"validationActions":["Deny"]`
			}
			made[1] += "}"
			for i, resource := range []string{"admissionpolicies", "admissionpolicybindings"} {
				path := apitest.AdmissionPath + strings.ToLower(kind) + resource
				body := `{"apiVersion":"admissionregistration.k8s.io/v1",` + made[i] + "}"
				s.Create(path, body)
			}
		}
	}
	s.Create(configMapsPath, apitest.ConfigMap("a"))
	var got []string
	for _, line := range strings.Split(s.Get("/metrics"), "\n") {
		if name, found := strings.CutPrefix(line, "apiserver_admission_match_condition_"); found &&
			!strings.Contains(line, "_bucket") && !strings.Contains(line, "_sum") {
			got = append(got, name)
		}
	}
	var want []string
	for _, of := range []string{"mutating-wrong", "validating-wrong"} {
		want = append(want, `evaluation_errors_total{kind="policy",name="`+of+`",operation="CREATE",type="validate"} 1`)
	}
	for _, of := range []string{"mutating-false", "mutating-wrong", "validating-false", "validating-wrong"} {
		want = append(want, `evaluation_seconds_count{kind="policy",name="`+of+`",operation="CREATE",type="validate"} 1`)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
