package controllertest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

const policiesPath = apitest.AdmissionPath + "validatingadmissionpolicies"

// typeNumber is the number that kube-controller-manager, and this server, append to the kind in the name of a type.
var typeNumber = regexp.MustCompile(`([ '(])([A-Z][A-Za-z]+)[0-9]+`)

// TestPolicyTypeChecks compares the status of policies with the one that kube-controller-manager 1.36 gave them. The file
// also has a definition of custom resources, which some of the policies are about.
func TestPolicyTypeChecks(t *testing.T) {
	text, err := os.ReadFile("testdata/policystatus.json")
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
	config := servertest.Default()
	config.Controllers.PolicyTypeChecks = true
	s := servertest.Start(t, config)
	s.Create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(recorded.Definition))
	s.Served("/apis/types.example.com/v2/widgets")
	for _, p := range recorded.Policies {
		body := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy",
			"metadata":{"name":%q},"spec":%s}`, p.Name, p.Spec)
		s.Create(policiesPath, body)
	}
	for _, p := range recorded.Policies {
		got := checkedPolicy(t, s, p.Name, 1)
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
	t *testing.T, s *servertest.Server, name string, generation int64,
) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	wait.Until(t, fmt.Sprintf("generation %d of %s is checked", generation, name), func() bool {
		*policy = admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := json.Unmarshal([]byte(s.Get(policiesPath+"/"+name)), policy); err != nil {
			t.Fatal(err)
		}
		return policy.Status.ObservedGeneration == generation
	})
	return policy
}

// TestPolicyTypeChecksFollowThePolicy: a new spec is checked again, a new label is not, and the field manager of
// the status is recorded.
func TestPolicyTypeChecksFollowThePolicy(t *testing.T) {
	const policy = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},
		"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"],
		"operations":["*"]}]},"validations":[{"expression":"object.nope == 1"}]}}`
	config := servertest.Default()
	config.Controllers.PolicyTypeChecks = true
	s := servertest.Start(t, config)
	s.Create(policiesPath, policy)
	first := checkedPolicy(t, s, "p", 1)
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
	s.Patch(policiesPath+"/p", `{"metadata":{"labels":{"a":"b"}}}`)
	s.Patch(policiesPath+"/p", `{"spec":{"validations":[{"expression":"object.spec.replicas > 1"}]}}`)
	// When kube-controller-manager applies a status without warnings, that removes typeChecking too.
	if second := checkedPolicy(t, s, "p", 2); second.Status.TypeChecking != nil {
		t.Errorf("%+v", second.Status)
	}
}
