package server

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestRunsController checks that --controllers is read by the rules of kube-controller-manager.
func TestRunsController(t *testing.T) {
	for _, test := range []struct {
		entries          string
		exclusive        bool
		namespace, quota bool
	}{
		{"", true, true, true},
		{"", false, false, true},
		{"*", false, true, true},
		{"-*", true, false, false},
		{"*,-namespace-controller", true, false, true},
		{"-namespace,*", true, false, true},
		{"namespace-controller", true, true, false},
		{"namespace", true, true, false},
		{"-namespace-controller", true, false, false},
		{"namespace-controller,-namespace-controller", true, true, false},
	} {
		c := settings{}
		if test.entries != "" {
			c.Controllers.Names = strings.Split(test.entries, ",")
		}
		if errs := c.validateControllers(); len(errs) > 0 {
			t.Errorf("%q: %v", test.entries, errs)
		}
		if got := c.runsController(namespaceController, !test.exclusive); got != test.namespace {
			t.Errorf("%q, exclusive %t: the namespace controller runs: %t", test.entries, test.exclusive, got)
		}
		if got := c.runsController(resourceQuotaController, !test.exclusive); got != test.quota {
			t.Errorf("%q, exclusive %t: the quota controller runs: %t", test.entries, test.exclusive, got)
		}
	}
	c := settings{}
	c.Controllers.Names = []string{"deployments"}
	if errs := c.validateControllers(); len(errs) != 1 {
		t.Errorf("an unknown controller: %v", errs)
	}
}

// TestRolesAreAggregatedByDefault checks that a server without a kube-controller-manager aggregates the rules of
// the roles view, edit and admin.
func TestRolesAreAggregatedByDefault(t *testing.T) {
	c := testConfig(t)
	c.Controllers.Names = nil
	s := start(t, c)
	admin := httpClient(t, s, true)
	for _, role := range []string{"view", "edit", "admin"} {
		wait.Seen(t, "rules of the role "+role, func() (bool, string) {
			a := apitest.Send(t, admin, "GET", s.URL()+"/apis/rbac.authorization.k8s.io/v1/clusterroles/"+role, "")
			return strings.Contains(a.Body, `"configmaps"`), a.Body
		})
	}
}

func TestPolicyTypeChecksAreOffByDefault(t *testing.T) {
	s := start(t, testConfig(t))
	if err := s.work.Healthy("type checks of admission policies"); err == nil {
		t.Error("the checks run although they are switched off")
	}
}
