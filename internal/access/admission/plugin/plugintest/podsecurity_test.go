package plugintest

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestPodSecurityHoldsForTheNextPod changes the level of a namespace many times, and creates a pod after each change
// that was acknowledged.
func TestPodSecurityHoldsForTheNextPod(t *testing.T) {
	s := servertest.Start(t, servertest.Default("serviceaccount-controller"))
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
	for i := range 50 {
		level, want := "privileged", http.StatusCreated
		if i%2 == 0 {
			level, want = "baseline", http.StatusForbidden
		}
		patch := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"` + level + `"}}}`
		s.Patch("/api/v1/namespaces/n", patch)
		if a := s.Send("POST", "/api/v1/namespaces/n/pods?dryRun=All", apitest.HostPod); a.Status != want {
			t.Fatalf("%s: %d %s", level, a.Status, a.Body)
		}
	}
	metrics := s.Get("/metrics")
	for _, line := range []string{
		`pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="privileged",policy_version="latest",` +
			`request_operation="create",resource="pod",subresource=""} 25`,
		`pod_security_evaluations_total{decision="deny",mode="enforce",policy_level="baseline",policy_version="latest",` +
			`request_operation="create",resource="pod",subresource=""} 25`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("no metric %s", line)
		}
	}
}

// TestPodSecurityIsConfigured configures the default level and an exempt user.
func TestPodSecurityIsConfigured(t *testing.T) {
	c := servertest.Default("serviceaccount-controller")
	c.Admission.ConfigFile = filepath.Join(t.TempDir(), "admission.yaml")
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline}
    exemptions: {usernames: [ann]}
`
	if err := os.WriteFile(c.Admission.ConfigFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, c)
	const path = "/api/v1/namespaces/default/pods?dryRun=All"
	s.Run([]apitest.Step{{"POST", path, apitest.HostPod, http.StatusForbidden, ""}})
	s.As("ann", "system:masters").Create(path, apitest.HostPod)
}

// TestGeneratedNamesAreInRefusals checks that validating plug-ins know the generated name, as in kube-apiserver.
func TestGeneratedNamesAreInRefusals(t *testing.T) {
	s := servertest.Start(t, servertest.Default("serviceaccount-controller"))
	s.Create("/api/v1/namespaces",
		`{"metadata":{"name":"n","labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	generated := strings.Replace(apitest.HostPod, `"name":"p"`, `"generateName":"g-"`, 1)
	a := s.Send("POST", "/api/v1/namespaces/n/pods", generated)
	want := regexp.MustCompile(`^pods "g-[a-z0-9]{5}" is forbidden: violates PodSecurity "baseline:latest": `)
	if a.Status != http.StatusForbidden || !want.MatchString(a.Message()) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
