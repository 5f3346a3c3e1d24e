package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestVersionsThatAreServed sends requests for resources that flags enable and disable.
func TestVersionsThatAreServed(t *testing.T) {
	c := testConfig(t)
	c.API.RuntimeConfig = []string{"coordination.k8s.io/v1beta1=true", "batch/v1/cronjobs=false,rbac.authorization.k8s.io/v1=false"}
	c.API.FeatureGates = []string{"ClusterTrustBundle=true"}
	s := start(t, c)
	for path, want := range map[string]int{
		"/apis/coordination.k8s.io/v1beta1/leasecandidates":                        http.StatusOK,
		"/apis/coordination.k8s.io/v1beta1":                                        http.StatusOK,
		"/openapi/v3/apis/coordination.k8s.io/v1beta1":                             http.StatusOK,
		"/apis/batch/v1/jobs":                                                      http.StatusOK,
		"/apis/batch/v1/cronjobs":                                                  http.StatusNotFound,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles":                          http.StatusNotFound,
		"/apis/rbac.authorization.k8s.io":                                          http.StatusNotFound,
		"/openapi/v3/apis/rbac.authorization.k8s.io/v1":                            http.StatusNotFound,
		"/apis/storage.k8s.io/v1beta1/volumeattributesclasses":                     http.StatusNotFound,
		"/apis/certificates.k8s.io/v1beta1/clustertrustbundles":                    http.StatusNotFound,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.coordination.k8s.io":  http.StatusOK,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.rbac.authorization.k8s.io": http.StatusNotFound,
	} {
		if status, body := getAsAdmin(t, s, path); status != want {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	if _, body := getAsAdmin(t, s, "/openapi/v3/apis/batch/v1"); strings.Contains(body, "cronjobs") {
		t.Error("the OpenAPI document has a resource that is switched off")
	}
	if _, body := getAsAdmin(t, s, "/apis/batch/v1"); strings.Contains(body, "cronjobs") {
		t.Error("discovery has a resource that is switched off")
	}
}

// TestGatesReachTheKinds creates a Lease with a field whose feature gate is off by default.
func TestGatesReachTheKinds(t *testing.T) {
	const lease = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"},` +
		`"spec":{"strategy":"OldestEmulationVersion"}}`
	for gates, want := range map[string]bool{"": false, "CoordinatedLeaderElection=true": true} {
		c := testConfig(t)
		c.API.FeatureGates = []string{gates}
		s := start(t, c)
		answer := sendAsAdmin(t, s, http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)
		if answer.Code != http.StatusCreated || strings.Contains(answer.Body.String(), "OldestEmulationVersion") != want {
			t.Errorf("gates %q: %d %s", gates, answer.Code, answer.Body)
		}
	}
}

// TestWrongRuntimeConfig: a server with wrong flags does not start.
func TestWrongRuntimeConfig(t *testing.T) {
	for _, flags := range []struct{ versions, gates, want string }{
		{"apps/v2=true", "", "group version apps/v2 that has not been registered"},
		{"", "TopologyAwareWorkloadScheduling=true",
			"TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]"},
	} {
		c := testConfig(t)
		c.API.RuntimeConfig, c.API.FeatureGates = []string{flags.versions}, []string{flags.gates}
		if _, err := Start(t.Context(), c.Config, c.Options); err == nil || !strings.Contains(err.Error(), flags.want) {
			t.Errorf("%+v: %v", flags, err)
		}
	}
}

func getAsAdmin(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	answer := sendAsAdmin(t, s, http.MethodGet, path, "")
	return answer.Code, answer.Body.String()
}

func sendAsAdmin(t *testing.T, s *Server, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer admintoken")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.http.server.Handler.ServeHTTP(w, r)
	return w
}
