package policy

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
)

// TestObjectsOfGates checks that feature gates add roles and bindings, and rules to existing roles.
func TestObjectsOfGates(t *testing.T) {
	count := func(gates features.Gates) (objects, nodeRules int) {
		all, err := Objects(gates)
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range all {
			if role, ok := obj.(*rbacv1.ClusterRole); ok && role.Name == NodeRole {
				nodeRules = len(role.Rules)
			}
		}
		return len(all), nodeRules
	}
	gates, err := features.Parse([]string{"ClusterTrustBundle=true"}, release.Of(36))
	if err != nil {
		t.Fatal(err)
	}
	without, err := features.Parse(nil, release.Of(36))
	if err != nil {
		t.Fatal(err)
	}
	objects, rules := count(without)
	if moreObjects, moreRules := count(gates); moreObjects != objects+4 || moreRules != rules+1 {
		t.Errorf("%d objects and %d rules of nodes, with the gate %d and %d", objects, rules, moreObjects, moreRules)
	}
	newest, err := features.Parse(nil, release.Of(release.Newest))
	if err != nil {
		t.Fatal(err)
	}
	objects, rules = count(newest)
	if allObjects, allRules := count(features.All()); allObjects != objects+6 || allRules != rules+1 {
		t.Errorf(
			"in the newest minor %d objects and %d rules of nodes, with all gates %d and %d", objects, rules, allObjects, allRules,
		)
	}
}
