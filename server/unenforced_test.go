package server

import (
	"net/http"
	"strings"
	"testing"
)

// TestUnenforcedObjectsAreAnsweredWithWarnings checks that creates, dry runs, applies and patches of objects that are
// stored but not enforced are answered with a warning.
func TestUnenforcedObjectsAreAnsweredWithWarnings(t *testing.T) {
	c := testConfig(t)
	c.Storage, c.DataDir = StorageMemory, ""
	s := start(t, c)
	const policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
	const binding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding",` +
		`"metadata":{"name":"q"},"spec":{"policyName":"p"}}`
	const warning = "MutatingAdmissionPolicyBindings are stored"
	for _, step := range []struct{ method, path, contentType, body, warning string }{
		{"POST", policies + "?dryRun=All", "application/json", binding, warning},
		{"POST", policies, "application/json", binding, warning},
		{"PATCH", policies + "/q", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`, warning},
		{"PATCH", policies + "/q?fieldManager=m", "application/apply-patch+yaml", binding, warning},
		{"PATCH", "/api/v1/namespaces/kube-public", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`, ""},
	} {
		r, err := http.NewRequest(step.method, s.URL()+step.path, strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", step.contentType)
		w, err := httpClient(t, s, true).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Body.Close() // the headers count
		got := w.Header.Get("Warning")
		if w.StatusCode >= http.StatusBadRequest || !strings.Contains(got, step.warning) ||
			(step.warning == "") != (got == "") {
			t.Errorf("%s %s: %d, warning %q", step.method, step.path, w.StatusCode, got)
		}
	}
}
