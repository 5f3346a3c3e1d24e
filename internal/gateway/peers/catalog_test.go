package peers

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// documentOf makes the document of a server; see groupsOf. The core group is part of the text.
func documentOf(text string) *document {
	return newDocument(&apidiscovery.APIGroupDiscoveryList{Items: groupsOf(text)})
}

func gvr(text string) schema.GroupVersionResource {
	parts := strings.Split(text, "/")
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

func versionsOf(texts ...string) map[schema.GroupVersion]bool {
	out := map[schema.GroupVersion]bool{}
	for _, text := range texts {
		group, version, _ := strings.Cut(text, "/")
		out[schema.GroupVersion{Group: group, Version: version}] = true
	}
	return out
}

func TestCatalog(t *testing.T) {
	c := newCatalog(map[string]*document{
		"a": documentOf("/v1:pods;apps/v1:x,y;example.com/v1:w"), "b": documentOf("apps/v1:x;apps/v2:x;example.com/v1:w;example.com/v2:w"),
	}, versionsOf("example.com/v1"))
	for resource, want := range map[string]string{
		"apps/v1/x": "a b", "apps/v1/y": "a", "apps/v2/x": "b", "apps/v3/x": "", "apps/v1/z": "", "/v1/pods": "a",
		"example.com/v1/w": "", "example.com/v2/w": "b",
	} {
		if got := strings.Join(c.serving(gvr(resource)), " "); got != want {
			t.Errorf("%s: %q, want %q", resource, got, want)
		}
	}
	// An excluded version is shown only if this server shows it. The core group is not in the document of /apis.
	for local, want := range map[string]string{
		"apps/v1:x":                    "apps/v1:x,y;apps/v2:x;example.com/v2:w",
		"apps/v1:x;example.com/v1:w,o": "apps/v1:x,y;apps/v2:x;example.com/v1:w,o;example.com/v2:w",
	} {
		if got := textOf(c.merge("me", groupsOf(local))); got != want {
			t.Errorf("%q: %q, want %q", local, got, want)
		}
	}
	alone := groupsOf("b/v1:x;a/v1:x")
	if got := newCatalog(nil, nil).merge("me", alone); &got[0] != &alone[0] {
		t.Errorf("without peers the groups are %q", textOf(got))
	}
}

func TestExclusions(t *testing.T) {
	began := time.Unix(0, 0)
	var e exclusions
	check := func(when string, want ...string) {
		t.Helper()
		var got []string
		for gv := range e.all() {
			got = append(got, gv.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	check("at the start")
	e.declare(versionsOf("a/v1", "b/v1"), began)
	check("two are declared", "a/v1", "b/v1")
	e.declare(versionsOf("b/v1"), began)
	check("one was removed", "a/v1", "b/v1")
	if got := e.expire(began.Add(grace)); len(got) > 0 {
		t.Errorf("%v expired too early", got)
	}
	e.declare(versionsOf("a/v1", "b/v1"), began.Add(time.Minute))
	if got := e.expire(began.Add(2 * grace)); len(got) > 0 {
		t.Errorf("%v expired although it was declared again", got)
	}
	e.declare(versionsOf(), began.Add(2*grace))
	e.declare(versionsOf("b/v1"), began.Add(2*grace))
	if got := e.expire(began.Add(3*grace + time.Second)); !maps.Equal(got, versionsOf("a/v1")) {
		t.Errorf("%v expired", got)
	}
	check("after the grace period", "b/v1")
}
