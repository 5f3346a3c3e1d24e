package kubectlhistory

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
)

// TestBuiltInGroups holds that every group of Kubernetes is built in here, and that the console has the same list.
func TestBuiltInGroups(t *testing.T) {
	page, err := os.ReadFile("../../../internal/console/app/src/logic/plan.ts")
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(string(page[strings.Index(string(page), "const GROUPS"):]), "]")
	groups := map[string]bool{"apiextensions.k8s.io": true, "apiregistration.k8s.io": true}
	for _, gv := range scheme.Scheme.PrioritizedVersionsAllGroups() {
		if strings.Contains(gv.Group, ".") && gv.Group != "imagepolicy.k8s.io" { // no server has that one
			groups[gv.Group] = true
		}
	}
	for group := range groups {
		if !builtIn(group) || !strings.Contains(list, "'"+group+"'") {
			t.Errorf("%s is not built in here (%t) and in the console", group, builtIn(group))
		}
	}
	for _, found := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(list, -1) {
		if !builtIn(found[1]) {
			t.Errorf("only the console has %s", found[1])
		}
	}
}
