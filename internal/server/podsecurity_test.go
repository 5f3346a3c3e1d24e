package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sendAs sends a request to the server, as a user in groups unless the user is "".
func sendAs(s *Server, user, groups, method, path, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer admintoken")
	r.Header.Set("Content-Type", contentType)
	if user != "" {
		r.Header.Set("Impersonate-User", user)
	}
	if groups != "" {
		r.Header.Set("Impersonate-Group", groups)
	}
	w := httptest.NewRecorder()
	s.http.server.Handler.ServeHTTP(w, r)
	return w
}

const hostPod = `{"metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`

// awaitAccess waits until a user may do what a grant that was just written allows: it comes to be known a little later.
func awaitAccess(t *testing.T, s *Server, user, verb, resource string) {
	t.Helper()
	body := `{"spec":{"resourceAttributes":{"verb":"` + verb + `","resource":"` + resource + `"}}}`
	const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	await(t, user+" may "+verb+" "+resource, func() bool {
		w := sendAs(s, user, "", http.MethodPost, reviews, "application/json", body)
		return strings.Contains(w.Body.String(), `"allowed":true`)
	})
}

// TestPodSecurityHoldsForTheNextPod changes the level of a namespace many times, and creates a pod after each change
// that was acknowledged.
func TestPodSecurityHoldsForTheNextPod(t *testing.T) {
	s := start(t, testConfig(t))
	post(t, s, "/api/v1/namespaces", `{"metadata":{"name":"n"}}`, http.StatusCreated)
	for i := range 50 {
		level, want := "privileged", http.StatusCreated
		if i%2 == 0 {
			level, want = "baseline", http.StatusForbidden
		}
		patch := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"` + level + `"}}}`
		w := sendAs(s, "", "", http.MethodPatch, "/api/v1/namespaces/n", "application/merge-patch+json", patch)
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		w = sendAs(s, "", "", http.MethodPost, "/api/v1/namespaces/n/pods?dryRun=All", "application/json", hostPod)
		if w.Code != want {
			t.Fatalf("%s: %d %s", level, w.Code, w.Body)
		}
	}
	w := sendAs(s, "", "", http.MethodGet, "/metrics", "", "")
	for _, line := range []string{
		`pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="privileged",policy_version="latest",` +
			`request_operation="create",resource="pod",subresource=""} 25`,
		`pod_security_evaluations_total{decision="deny",mode="enforce",policy_level="baseline",policy_version="latest",` +
			`request_operation="create",resource="pod",subresource=""} 25`,
	} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("no metric %s", line)
		}
	}
}

// TestPodSecurityIsConfigured configures the default level and an exempt user.
func TestPodSecurityIsConfigured(t *testing.T) {
	c := testConfig(t)
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
	s := start(t, c)
	const path = "/api/v1/namespaces/default/pods?dryRun=All"
	post(t, s, path, hostPod, http.StatusForbidden)
	w := sendAs(s, "ann", "system:masters", http.MethodPost, path, "application/json", hostPod)
	if w.Code != http.StatusCreated {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestPluginsThatAreOffByDefault switches the plug-ins on that need parts of the server, and sends a write to each.
func TestPluginsThatAreOffByDefault(t *testing.T) {
	c := testConfig(t)
	c.Admission.Enable = []string{
		"NamespaceAutoProvision", "NamespaceExists", "NodeRestriction", "OwnerReferencesPermissionEnforcement",
		"DenyServiceExternalIPs", "AlwaysAdmit",
	}
	s := start(t, c)
	const json, core = "application/json", "/api/v1/namespaces/"
	post(t, s, core+"made/configmaps?dryRun=All", `{"metadata":{"name":"c"}}`, http.StatusNotFound)
	post(t, s, core+"made/configmaps", `{"metadata":{"name":"c"}}`, http.StatusCreated)
	if w := sendAs(s, "", "", http.MethodGet, core+"made", "", ""); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), `"manager":"kube-apiserver"`) {
		t.Errorf("namespace: %d %s", w.Code, w.Body)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	post(t, s, rbac+"clusterroles", `{"metadata":{"name":"ann"},"rules":[{"verbs":["create"],"apiGroups":[""],`+
		`"resources":["configmaps"]}]}`, http.StatusCreated)
	post(t, s, rbac+"clusterrolebindings", `{"metadata":{"name":"ann"},"subjects":[{"kind":"User","name":"ann"}],`+
		`"roleRef":{"kind":"ClusterRole","name":"ann"}}`, http.StatusCreated)
	awaitAccess(t, s, "ann", "create", "configmaps")
	const service = `{"metadata":{"name":"s"},"spec":{"ports":[{"port":1}],"externalIPs":["1.2.3.4"]}}`
	owned := func(kind string) string {
		return `{"metadata":{"name":"d","ownerReferences":[{"apiVersion":"v1","kind":"` + kind +
			`","name":"x","uid":"u","blockOwnerDeletion":true}]}}`
	}
	for name, c := range map[string]struct{ user, group, path, body, want string }{
		"external IPs": {"", "", core + "made/services", service, "Use of external IPs is denied by admission control"},
		"node": {
			"system:node:a", "system:nodes", "/api/v1/nodes", `{"metadata":{"name":"b"}}`,
			`is not allowed to modify node \"b\"`,
		},
		"owner": {"ann", "", core + "made/configmaps", owned("Node"),
			"refers to a resource you can't set finalizers on: , \\u003cnil\\u003e"},
		"unknown owner": {
			"ann", "", core + "made/configmaps", owned("Nothing"), `no matches for kind \"Nothing\" in version \"v1\"`,
		},
	} {
		await(t, name, func() bool {
			w := sendAs(s, c.user, c.group, http.MethodPost, c.path, json, c.body)
			if w.Code != http.StatusForbidden {
				t.Fatalf("%s: %d %s", name, w.Code, w.Body)
			}
			// The grant may not be known at once.
			return strings.Contains(w.Body.String(), c.want)
		})
	}
}

// TestGeneratedNamesAreInRefusals: validating plug-ins know the name that was generated, as in kube-apiserver.
func TestGeneratedNamesAreInRefusals(t *testing.T) {
	s := start(t, testConfig(t))
	post(t, s, "/api/v1/namespaces",
		`{"metadata":{"name":"n","labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`, http.StatusCreated)
	generated := strings.Replace(hostPod, `"name":"p"`, `"generateName":"g-"`, 1)
	out := post(t, s, "/api/v1/namespaces/n/pods", generated, http.StatusForbidden)
	want := regexp.MustCompile(`^pods "g-[a-z0-9]{5}" is forbidden: violates PodSecurity "baseline:latest": `)
	if message, _ := out["message"].(string); !want.MatchString(message) {
		t.Errorf("%q", message)
	}
}
