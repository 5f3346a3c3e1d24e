package server

import (
	"runtime"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestStopEndsWhatAuthenticationAndAuthorizationStarted checks that all background work of authentication and
// authorization belongs to the group for which Stop waits, and has ended when Stop returns.
func TestStopEndsWhatAuthenticationAndAuthorizationStarted(t *testing.T) {
	c := testConfig(t)
	oidc := &c.Authentication.OIDC
	oidc.IssuerURL, oidc.ClientID = "https://127.0.0.1:1", "keelson"
	c.Controllers.Names = []string{aggregationController}
	s := start(t, c)
	// The node authorizer begins with the first request of a node that it has to decide.
	a := apitest.Send(t, httpClient(t, s, true), "GET", s.URL()+"/api/v1/namespaces/default/secrets/none", "",
		"Impersonate-User", "system:node:n1", "Impersonate-Group", "system:nodes")
	if a.Status != 403 {
		t.Fatalf("a node's request: %d %s", a.Status, a.Body)
	}
	if err := s.work.Healthy(
		"RBAC: roles", "RBAC: clusterroles", "RBAC: rolebindings", "RBAC: clusterrolebindings",
		aggregationController,
		"node authorizer: pods", "node authorizer: persistentvolumes", "node authorizer: volumeattachments",
		"node authorizer: resourceslices", "token issuers",
	); err != nil {
		t.Error(err)
	}
	stop(t, s)
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, goroutine := range strings.Split(string(stacks), "\n\n") {
		for _, tree := range []string{"registry/informer.", "internal/access/auth/", "internal/controller/", "internal/api/crd."} {
			if strings.Contains(goroutine, tree) {
				t.Errorf("a goroutine is left after Stop:\n%s", goroutine)
				break
			}
		}
	}
}
