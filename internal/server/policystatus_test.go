package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// typeNumber is the number that kube-controller-manager, and this server, append to the kind in the name of a type.
var typeNumber = regexp.MustCompile(`([ '(])([A-Z][A-Za-z]+)[0-9]+`)

// TestPolicyTypeChecks compares the status of policies with the one that kube-controller-manager 1.36 gave them. The file
// also has a definition of custom resources, which some of the policies are about.
func TestPolicyTypeChecks(t *testing.T) {
	text, err := os.ReadFile("../controller/policystatus/testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Definition json.RawMessage
		Policies   []struct {
			Name     string
			Spec     json.RawMessage
			Warnings []admissionregistrationv1.ExpressionWarning
		}
	}
	if err := json.Unmarshal(text, &recorded); err != nil || len(recorded.Policies) == 0 {
		t.Fatal(len(recorded.Policies), err)
	}
	config := testConfig(t)
	config.Controllers.PolicyTypeChecks = true
	s := start(t, config)
	c := httpClient(t, s, true)
	definitions := s.URL() + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if a := sendJSON(t, c, "POST", definitions, string(recorded.Definition)); a.status != http.StatusCreated {
		t.Fatal(a.status, a.body)
	}
	eventually(t, "the custom resource is served", func() bool {
		return call(t, c, "GET", s.URL()+"/apis/types.example.com/v2/widgets").status == http.StatusOK
	})
	url := s.URL() + "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	for _, p := range recorded.Policies {
		body := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy",
			"metadata":{"name":%q},"spec":%s}`, p.Name, p.Spec)
		if a := sendJSON(t, c, "POST", url, body); a.status != http.StatusCreated {
			t.Fatal(p.Name, a.status, a.body)
		}
	}
	for _, p := range recorded.Policies {
		got := checkedPolicy(t, c, url+"/"+p.Name, 1)
		for _, all := range [][]admissionregistrationv1.ExpressionWarning{p.Warnings, got.Status.TypeChecking.ExpressionWarnings} {
			for i := range all {
				all[i].Warning = typeNumber.ReplaceAllString(all[i].Warning, "$1$2")
			}
		}
		if !equality.Semantic.DeepEqual(got.Status.TypeChecking.ExpressionWarnings, p.Warnings) {
			t.Errorf("%s:\ngot  %q\nwant %q", p.Name, got.Status.TypeChecking.ExpressionWarnings, p.Warnings)
		}
	}
}

// checkedPolicy waits until a generation of a policy was checked, and returns the policy.
func checkedPolicy(
	t *testing.T, c *http.Client, url string, generation int64,
) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	eventually(t, fmt.Sprintf("generation %d of %s is checked", generation, url), func() bool {
		*policy = admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := json.Unmarshal([]byte(call(t, c, "GET", url).body), policy); err != nil {
			t.Fatal(err)
		}
		return policy.Status.ObservedGeneration == generation
	})
	return policy
}

// eventually waits until something is true, for at most a minute.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it is not so: %s", what)
		}
	}
}

// TestPolicyTypeChecksFollowThePolicy: a new spec is checked again, a new label is not, and who wrote the status is
// known. With the checks switched off there is no status.
func TestPolicyTypeChecksFollowThePolicy(t *testing.T) {
	const policy = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},
		"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"],
		"operations":["*"]}]},"validations":[{"expression":"object.nope == 1"}]}}`
	config := testConfig(t)
	config.Controllers.PolicyTypeChecks = true
	s := start(t, config)
	c := httpClient(t, s, true)
	url := s.URL() + "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	if a := sendJSON(t, c, "POST", url, policy); a.status != http.StatusCreated {
		t.Fatal(a.status, a.body)
	}
	first := checkedPolicy(t, c, url+"/p", 1)
	if len(first.Status.TypeChecking.ExpressionWarnings) != 1 {
		t.Errorf("%+v", first.Status)
	}
	const want = `{"f:status":{"f:observedGeneration":{},"f:typeChecking":{"f:expressionWarnings":{}}}}`
	if !slices.ContainsFunc(first.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "validatingadmissionpolicy-status" && m.Operation == metav1.ManagedFieldsOperationApply &&
			m.Subresource == "status" && string(m.FieldsV1.Raw) == want
	}) {
		t.Errorf("the managers are %+v", first.ManagedFields)
	}
	patch := func(body string) {
		t.Helper()
		if a := sendJSON(
			t, c, "PATCH", url+"/p", body, "Content-Type", "application/merge-patch+json",
		); a.status != http.StatusOK {
			t.Fatal(a.status, a.body)
		}
	}
	patch(`{"metadata":{"labels":{"a":"b"}}}`)
	patch(`{"spec":{"validations":[{"expression":"object.spec.replicas > 1"}]}}`)
	// kube-controller-manager's apply takes the warnings away in the same manner, and typeChecking with them.
	if second := checkedPolicy(t, c, url+"/p", 2); second.Status.TypeChecking != nil {
		t.Errorf("%+v", second.Status)
	}
	s = start(t, testConfig(t))
	if err := s.work.Healthy("type checks of admission policies"); err == nil {
		t.Error("the checks run although they are switched off")
	}
}
