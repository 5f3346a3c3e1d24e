package kubectlhistory

import (
	"slices"
	"testing"
)

// testCatalog are resources of a server.
var testCatalog = catalog{
	{Version: "v1", Name: "pods", Singular: "pod", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true},
	{Version: "v1", Name: "namespaces", Singular: "namespace", Kind: "Namespace", ShortNames: []string{"ns"}},
	{Version: "v1", Name: "events", Singular: "event", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true},
	{Group: "apps", Version: "v1", Name: "deployments", Singular: "deployment", Kind: "Deployment", ShortNames: []string{"deploy"}, Namespaced: true},
	{Group: "autoscaling", Version: "v2", Name: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", ShortNames: []string{"hpa"}, Namespaced: true},
	{Group: "autoscaling", Version: "v1", Name: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", ShortNames: []string{"hpa"}, Namespaced: true},
	{Group: "events.k8s.io", Version: "v1", Name: "events", Singular: "event", Kind: "Event", Namespaced: true},
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"pods": "/api/v1/namespaces/a/pods/x", "pod": "/api/v1/namespaces/a/pods/x", "po": "/api/v1/namespaces/a/pods/x",
		"Pod": "/api/v1/namespaces/a/pods/x", "pods.v1": "/api/v1/namespaces/a/pods/x", "ns": "/api/v1/namespaces/x",
		"deploy":                              "/apis/apps/v1/namespaces/a/deployments/x",
		"deployments.apps":                    "/apis/apps/v1/namespaces/a/deployments/x",
		"hpa":                                 "/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers/x",
		"hpa.v1.autoscaling":                  "/apis/autoscaling/v1/namespaces/a/horizontalpodautoscalers/x",
		"horizontalpodautoscaler.autoscaling": "/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers/x",
		"events":                              "/api/v1/namespaces/a/events/x",
		"events.events.k8s.io":                "/apis/events.k8s.io/v1/namespaces/a/events/x",
		"widgets":                             "", "pods.apps": "", "deployments.v2.apps": "", "": "",
	} {
		r, err := testCatalog.find(name)
		got := ""
		if err == nil {
			got = r.path("a", "x")
		}
		if got != want {
			t.Errorf("%q: %s, %v; want %s", name, got, err, want)
		}
	}
	if r, ok := testCatalog.ofKind("autoscaling/v3", "HorizontalPodAutoscaler"); !ok || r.Version != "v2" {
		t.Errorf("%v %v", r, ok)
	}
	if r, ok := testCatalog.ofKind("v1", "Pod"); !ok || r.Name != "pods" || r.objectName("a") != "pod/a" {
		t.Errorf("%v %v", r, ok)
	}
	if _, ok := testCatalog.ofKind("v1", "Widget"); ok {
		t.Error("a kind that does not exist is found")
	}
	if got := testCatalog[0].path("", "", "x"); got != "/api/v1/pods/x" {
		t.Error(got)
	}
}

func TestSplitArgs(t *testing.T) {
	for _, c := range []struct {
		args, names []string
		kind, err   string
	}{
		{args: []string{"pod"}, kind: "pod"},
		{args: []string{"pod", "a", "b"}, kind: "pod", names: []string{"a", "b"}},
		{args: []string{"pod/a"}, kind: "pod", names: []string{"a"}},
		{args: []string{"pod/a", "pod/b"}, kind: "pod", names: []string{"a", "b"}},
		{args: nil, err: "name the resource type, for example deployments or deployments.apps"},
		{args: []string{"pod/a", "svc/b"}, err: "all objects must be of one type, but there are pod and svc"},
		{args: []string{"pod/a", "b"}, err: `"b" must be TYPE/NAME`},
		{args: []string{"pod", "svc/b"}, err: `the name "svc/b" has a slash; write either TYPE NAME or TYPE/NAME`},
		{args: []string{"pod/"}, err: `"pod/" must be TYPE/NAME`},
		{args: []string{"pod", ".."}, err: `".." is not a name`},
		{args: []string{"pod", ""}, err: `"" is not a name`},
	} {
		kind, names, err := splitArgs(c.args)
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%q: %v, want %s", c.args, err, c.err)
			}
		case err != nil || kind != c.kind || !slices.Equal(names, c.names):
			t.Errorf("%q: %s %q %v", c.args, kind, names, err)
		}
	}
	if _, _, err := splitOne([]string{"pod"}); err == nil || err.Error() != "name one object: pod NAME, or pod/NAME" {
		t.Error(err)
	}
}
