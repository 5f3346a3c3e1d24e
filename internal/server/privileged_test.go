package server

import (
	"net/http"
	"strings"
	"testing"
)

// TestPrivilegedContainers checks Admission.ForbidPrivileged with the messages of kube-apiserver 1.36.
func TestPrivilegedContainers(t *testing.T) {
	const spec = `{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}`
	bodies := map[string]string{
		"/api/v1/namespaces/default/pods": `{"metadata":{"name":"p"},"spec":` + spec + `}`,
		"/apis/apps/v1/namespaces/default/deployments": `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":` + spec + `}}}`,
	}
	const forbidden = "containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy"
	for _, allowed := range []bool{true, false} {
		config := testConfig(t)
		config.Admission.ForbidPrivileged = !allowed
		config.Admission.Disable = []string{"ServiceAccount"}
		s := start(t, config)
		want := map[bool]int{true: http.StatusCreated, false: http.StatusUnprocessableEntity}[allowed]
		for path, body := range bodies {
			a := callWith(t, httpClient(t, s, true), "", "POST", s.URL()+path, "application/json", body)
			if a.Status != want || !allowed && !strings.Contains(a.Body, forbidden) {
				t.Errorf("allowed %v, %s: %d %s", allowed, path, a.Status, a.Body)
			}
		}
	}
}
