package plugintest

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestAuditedFailuresShareAnAnnotation has two policies, one with two validations, whose failures are recorded.
func TestAuditedFailuresShareAnAnnotation(t *testing.T) {
	dir := t.TempDir()
	c := servertest.Default()
	c.Audit.PolicyFile, c.Audit.Log.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	if err := os.WriteFile(c.Audit.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, c)
	s.Create(policiesPath, policyBody("one", `"validations":[{"expression":"false","message":"a"},{"expression":"1 > 2","message":"b"}]`))
	s.Create(policiesPath, policyBody("two", `"validations":[{"expression":"false","message":"c"}]`))
	s.Create(bindingsPath, bindingBody("one", `"Audit"`, ""))
	s.Create(bindingsPath, bindingBody("two", `"Audit","Warn"`, ""))
	s.Run([]apitest.Step{{"POST", configMapsPath, apitest.ConfigMap("audited"), http.StatusCreated, ""}})
	const want = `[{"message":"a","policy":"one","binding":"one","expressionIndex":0,"validationActions":["Audit"]},` +
		`{"message":"b","policy":"one","binding":"one","expressionIndex":1,"validationActions":["Audit"]},` +
		`{"message":"c","policy":"two","binding":"two","expressionIndex":0,"validationActions":["Audit","Warn"]}]`
	wait.Seen(t, "the annotation", func() (bool, string) {
		log, err := os.ReadFile(c.Audit.Log.Path)
		if err != nil {
			return false, err.Error()
		}
		got := ""
		for line := range strings.Lines(string(log)) {
			var e struct {
				Annotations map[string]string
				ObjectRef   struct{ Resource, Name string }
				Verb        string
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Verb == "create" && e.ObjectRef.Resource == "configmaps" {
				got = e.Annotations["validation.policy.admission.k8s.io/validation_failure"]
			}
		}
		return got == want, got
	})
}
