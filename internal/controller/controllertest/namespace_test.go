package controllertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// namespaceConditions returns the conditions of the namespace demo that are True, each with its reason and message.
func namespaceConditions(t *testing.T, s *servertest.Server) string {
	t.Helper()
	var n corev1.Namespace
	if err := json.Unmarshal([]byte(s.Get("/api/v1/namespaces/demo")), &n); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			out = append(out, fmt.Sprintf("%s %s %s", c.Type, c.Reason, c.Message))
		}
	}
	return strings.Join(out, "\n")
}

// TestNamespaceDeletionEnds deletes a namespace with built-in objects and custom resources. No other server or
// controller manager runs.
func TestNamespaceDeletionEnds(t *testing.T) {
	s := servertest.Start(t, servertest.Default("namespace-controller"))
	s.DefineWidgets()
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	for _, path := range []string{
		"/api/v1/namespaces/demo/configmaps", "/api/v1/namespaces/demo/secrets", "/api/v1/namespaces/demo/serviceaccounts",
		"/apis/coordination.k8s.io/v1/namespaces/demo/leases",
	} {
		s.Create(path, `{"metadata":{"name":"a"}}`)
		s.Create(strings.ReplaceAll(path, "/demo/", "/default/"), `{"metadata":{"name":"a"}}`)
	}
	for _, namespace := range []string{"demo", "default"} {
		s.Create("/apis/example.com/v1/namespaces/"+namespace+"/widgets",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`)
	}
	s.Do("DELETE", "/api/v1/namespaces/demo", "")
	s.Gone("/api/v1/namespaces/demo")
	s.Gone("/api/v1/namespaces/demo/configmaps/a")
	s.Gone("/apis/example.com/v1/namespaces/demo/widgets/a")
	// Objects of other namespaces stay.
	s.Get("/api/v1/namespaces/default/configmaps/a")
	s.Get("/apis/example.com/v1/namespaces/default/widgets/a")
}

// TestNamespaceDeletionWaitsForFinalizers checks the conditions while objects with finalizers are left, and that pods
// go before everything else.
func TestNamespaceDeletionWaitsForFinalizers(t *testing.T) {
	s := servertest.Start(t, servertest.Default("namespace-controller", "serviceaccount-controller"))
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	s.Served("/api/v1/namespaces/demo/serviceaccounts/default")
	s.Create("/api/v1/namespaces/demo/pods", `{"metadata":{"name":"p","finalizers":["example.com/pod"]},
		"spec":{"containers":[{"name":"c","image":"i"}],"terminationGracePeriodSeconds":0}}`)
	s.Create("/api/v1/namespaces/demo/configmaps",
		`{"metadata":{"name":"a","finalizers":["example.com/map"]}}`)
	s.Create("/api/v1/namespaces/demo/configmaps", `{"metadata":{"name":"b"}}`)
	s.Do("DELETE", "/api/v1/namespaces/demo", "")
	wait.Seen(t, "a condition", func() (bool, string) {
		got := s.Get("/api/v1/namespaces/demo")
		return strings.Contains(got, "NamespaceFinalizersRemaining"), got
	})
	awaitNamespaceConditions(t, s)                // kube-controller-manager does not count pods while it waits for them
	s.Get("/api/v1/namespaces/demo/configmaps/b") // pods are deleted first

	const noFinalizers = `{"metadata":{"finalizers":null}}`
	s.Patch("/api/v1/namespaces/demo/pods/p", noFinalizers)
	awaitNamespaceConditions(t, s, "NamespaceContentRemaining SomeResourcesRemain "+
		"Some resources are remaining: configmaps. has 1 resource instances",
		"NamespaceFinalizersRemaining SomeFinalizersRemain "+
			"Some content in the namespace has finalizers remaining: example.com/map in 1 resource instances")
	s.Gone("/api/v1/namespaces/demo/configmaps/b")
	s.Patch("/api/v1/namespaces/demo/configmaps/a", noFinalizers)
	s.Gone("/api/v1/namespaces/demo")
}

// awaitNamespaceConditions waits until the conditions of the namespace demo that are True are these lines.
func awaitNamespaceConditions(t *testing.T, s *servertest.Server, lines ...string) {
	t.Helper()
	want := strings.Join(lines, "\n")
	wait.Seen(t, "the conditions\n"+want+"\n", func() (bool, string) {
		got := namespaceConditions(t, s)
		return got == want, "they are\n" + got
	})
}

// TestNamespaceDeletionWaitsForExtensionServers: while the resources of an extension API server are not known, the
// namespace stays, because it may still contain objects of that server.
func TestNamespaceDeletionWaitsForExtensionServers(t *testing.T) {
	s := servertest.Start(t, servertest.Default("namespace-controller"))
	e := apitest.NewExtension(t)
	e.Register(s.Client)
	e.Broken.Store(true)
	wait.Seen(t, "the version being stale", func() (bool, string) {
		s.Send("GET", apitest.ExtensionVersion+"/anything", "") // makes the server check the extension
		got := s.Send("GET", "/apis", "", "Accept", apitest.AggregatedDiscovery).Body
		return strings.Contains(got, `"freshness":"Stale"`), got
	})
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	s.Do("DELETE", "/api/v1/namespaces/demo", "")
	awaitNamespaceConditions(t, s, "NamespaceDeletionDiscoveryFailure DiscoveryFailed Discovery failed for some groups, 1 failing: "+
		"unable to retrieve the complete list of server APIs: agg.example.com/v1: stale GroupVersion discovery: "+
		"agg.example.com/v1")
	e.Broken.Store(false)
	s.Gone("/api/v1/namespaces/demo")
}
