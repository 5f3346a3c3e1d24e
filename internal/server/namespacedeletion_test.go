package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/config"
)

// controlled is a server with controllers, and a client of it.
type controlled struct {
	t *testing.T
	s *Server
	c *http.Client
}

// startControlled starts a server with the controllers named.
func startControlled(t *testing.T, controllers ...string) *controlled {
	t.Helper()
	conf := testConfig(t)
	conf.Storage.Backend, conf.Storage.DataDir, conf.Controllers.Names = config.StorageMemory, "", controllers
	s := start(t, conf)
	return &controlled{t, s, httpClient(t, s, true)}
}

// send sends a request and expects a status below 300. It returns the body of the response.
func (k *controlled) send(method, path, body string, headers ...string) string {
	k.t.Helper()
	got := sendJSON(k.t, k.c, method, k.s.URL()+path, body, headers...)
	if got.status >= 300 {
		k.t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
	}
	return got.body
}

// gone waits until a path is answered 404.
func (k *controlled) gone(path string) {
	k.t.Helper()
	k.eventually(path+" to be gone", func() (bool, string) {
		got := sendJSON(k.t, k.c, http.MethodGet, k.s.URL()+path, "")
		return got.status == http.StatusNotFound, got.body
	})
}

// eventually waits until check returns true, and fails with the text that it returns.
func (k *controlled) eventually(what string, check func() (bool, string)) {
	k.t.Helper()
	const tries, pause = 1500, 20 * time.Millisecond
	text := ""
	for range tries {
		var ok bool
		if ok, text = check(); ok {
			return
		}
		time.Sleep(pause)
	}
	k.t.Fatalf("waited %v for %s: %s", tries*pause, what, text)
}

// conditions returns the conditions of a namespace that are True, each with its reason and message.
func (k *controlled) conditions(namespace string) string {
	k.t.Helper()
	var n corev1.Namespace
	got := sendJSON(k.t, k.c, http.MethodGet, k.s.URL()+"/api/v1/namespaces/"+namespace, "")
	if err := json.Unmarshal([]byte(got.body), &n); err != nil {
		k.t.Fatal(err)
	}
	var out []string
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			out = append(out, fmt.Sprintf("%s %s %s", c.Type, c.Reason, c.Message))
		}
	}
	return strings.Join(out, "\n")
}

const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// define creates the resource widgets and waits until it is served.
func (k *controlled) define() {
	k.t.Helper()
	k.send(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgetDefinition)
	k.eventually("widgets to be served", func() (bool, string) {
		got := sendJSON(k.t, k.c, http.MethodGet, k.s.URL()+"/apis/example.com/v1/widgets", "")
		return got.status == http.StatusOK, got.body
	})
}

// TestNamespaceDeletionEnds deletes a namespace with built-in objects and custom resources on a server alone.
func TestNamespaceDeletionEnds(t *testing.T) {
	k := startControlled(t, "namespace-controller")
	k.define()
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	for _, path := range []string{
		"/api/v1/namespaces/demo/configmaps", "/api/v1/namespaces/demo/secrets", "/api/v1/namespaces/demo/serviceaccounts",
		"/apis/coordination.k8s.io/v1/namespaces/demo/leases",
	} {
		k.send(http.MethodPost, path, `{"metadata":{"name":"a"}}`)
		k.send(http.MethodPost, strings.ReplaceAll(path, "/demo/", "/default/"), `{"metadata":{"name":"a"}}`)
	}
	for _, namespace := range []string{"demo", "default"} {
		k.send(http.MethodPost, "/apis/example.com/v1/namespaces/"+namespace+"/widgets",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`)
	}
	k.send(http.MethodDelete, "/api/v1/namespaces/demo", "")
	k.gone("/api/v1/namespaces/demo")
	k.gone("/api/v1/namespaces/demo/configmaps/a")
	k.gone("/apis/example.com/v1/namespaces/demo/widgets/a")
	// Objects of other namespaces stay.
	k.send(http.MethodGet, "/api/v1/namespaces/default/configmaps/a", "")
	k.send(http.MethodGet, "/apis/example.com/v1/namespaces/default/widgets/a", "")
}

// TestNamespaceDeletionWaitsForFinalizers checks the conditions while objects with finalizers are left, and that pods
// go before everything else.
func TestNamespaceDeletionWaitsForFinalizers(t *testing.T) {
	k := startControlled(t, "namespace-controller", "serviceaccount-controller")
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	k.eventually("the default service account", func() (bool, string) {
		got := sendJSON(t, k.c, http.MethodGet, k.s.URL()+"/api/v1/namespaces/demo/serviceaccounts/default", "")
		return got.status == http.StatusOK, got.body
	})
	k.send(http.MethodPost, "/api/v1/namespaces/demo/pods", `{"metadata":{"name":"p","finalizers":["example.com/pod"]},
		"spec":{"containers":[{"name":"c","image":"i"}],"terminationGracePeriodSeconds":0}}`)
	k.send(http.MethodPost, "/api/v1/namespaces/demo/configmaps",
		`{"metadata":{"name":"a","finalizers":["example.com/map"]}}`)
	k.send(http.MethodPost, "/api/v1/namespaces/demo/configmaps", `{"metadata":{"name":"b"}}`)
	k.send(http.MethodDelete, "/api/v1/namespaces/demo", "")
	k.eventually("a condition", func() (bool, string) {
		got := k.send(http.MethodGet, "/api/v1/namespaces/demo", "")
		return strings.Contains(got, "NamespaceFinalizersRemaining"), got
	})
	k.awaitConditions()                                                // kube-controller-manager does not count pods while it waits for them
	k.send(http.MethodGet, "/api/v1/namespaces/demo/configmaps/b", "") // pods go first

	const noFinalizers, merge = `{"metadata":{"finalizers":null}}`, "application/merge-patch+json"
	k.send(http.MethodPatch, "/api/v1/namespaces/demo/pods/p", noFinalizers, "Content-Type", merge)
	k.awaitConditions("NamespaceContentRemaining SomeResourcesRemain "+
		"Some resources are remaining: configmaps. has 1 resource instances",
		"NamespaceFinalizersRemaining SomeFinalizersRemain "+
			"Some content in the namespace has finalizers remaining: example.com/map in 1 resource instances")
	k.gone("/api/v1/namespaces/demo/configmaps/b")
	k.send(http.MethodPatch, "/api/v1/namespaces/demo/configmaps/a", noFinalizers, "Content-Type", merge)
	k.gone("/api/v1/namespaces/demo")
}

// awaitConditions waits until the conditions of the namespace demo that are True are these lines.
func (k *controlled) awaitConditions(lines ...string) {
	k.t.Helper()
	want := strings.Join(lines, "\n")
	k.eventually("the conditions\n"+want+"\n", func() (bool, string) {
		got := k.conditions("demo")
		return got == want, "they are\n" + got
	})
}

// TestNamespaceDeletionWaitsForExtensionServers: while the resources of an extension API server are not known, the
// namespace stays, because objects of it may be left.
func TestNamespaceDeletionWaitsForExtensionServers(t *testing.T) {
	k := startControlled(t, "namespace-controller")
	e := newExtension(t)
	e.register(t, k.c, k.s.URL())
	e.broken.Store(true)
	k.eventually("the version being stale", func() (bool, string) {
		_, stale := k.s.api.discovery.Preferred()
		_ = sendJSON(t, k.c, http.MethodGet, k.s.URL()+extensionGroup+"/anything", "") // has the server checked
		return len(stale) == 1, fmt.Sprint(stale)
	})
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	k.send(http.MethodDelete, "/api/v1/namespaces/demo", "")
	k.awaitConditions("NamespaceDeletionDiscoveryFailure DiscoveryFailed Discovery failed for some groups, 1 failing: " +
		"unable to retrieve the complete list of server APIs: agg.example.com/v1: stale GroupVersion discovery: " +
		"agg.example.com/v1")
	e.broken.Store(false)
	k.gone("/api/v1/namespaces/demo")
}

// TestControllersPause: while a kube-controller-manager holds its lease, the controllers do nothing; when the lease is
// released, they continue.
func TestControllersPause(t *testing.T) {
	k := startControlled(t, "namespace-controller")
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	k.send(http.MethodPost, leases, `{"metadata":{"name":"kube-controller-manager"},
		"spec":{"holderIdentity":"other","leaseDurationSeconds":3600,"renewTime":"2026-01-01T00:00:00.000000Z"}}`)
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	k.send(http.MethodPost, "/api/v1/namespaces/demo/configmaps", `{"metadata":{"name":"a"}}`)
	k.send(http.MethodDelete, "/api/v1/namespaces/demo", "")
	time.Sleep(3 * ownSettleTime) // long enough for the controller to delete it, if it ran
	k.send(http.MethodGet, "/api/v1/namespaces/demo/configmaps/a", "")
	k.send(http.MethodPatch, leases+"/kube-controller-manager", `{"spec":{"holderIdentity":null}}`,
		"Content-Type", "application/merge-patch+json")
	k.gone("/api/v1/namespaces/demo")
}

// TestControllersContinueAfterTheLease: a lease that is not renewed expires.
func TestControllersContinueAfterTheLease(t *testing.T) {
	k := startControlled(t, "namespace-controller")
	k.send(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		`{"metadata":{"name":"kube-controller-manager"},
		"spec":{"holderIdentity":"other","leaseDurationSeconds":2,"renewTime":"2026-01-01T00:00:00.000000Z"}}`)
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	k.send(http.MethodDelete, "/api/v1/namespaces/demo", "")
	k.gone("/api/v1/namespaces/demo")
}

// TestRunsController compares the syntax of --controllers with that of kube-controller-manager.
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
		if got := c.runsController(namespaceController, test.exclusive); got != test.namespace {
			t.Errorf("%q, exclusive %t: the namespace controller runs: %t", test.entries, test.exclusive, got)
		}
		if got := c.runsController(resourceQuotaController, test.exclusive); got != test.quota {
			t.Errorf("%q, exclusive %t: the quota controller runs: %t", test.entries, test.exclusive, got)
		}
	}
	c := settings{}
	c.Controllers.Names = []string{"deployments"}
	if errs := c.validateControllers(); len(errs) != 1 {
		t.Errorf("an unknown controller: %v", errs)
	}
}

// TestRootCertificatesArePublished: each namespace has the certificates of the server, also after somebody has deleted
// or changed them.
func TestRootCertificatesArePublished(t *testing.T) {
	k := startControlled(t, "root-ca-certificate-publisher-controller")
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	const path = "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt"
	published := func() {
		t.Helper()
		k.eventually("the certificates", func() (bool, string) {
			var m corev1.ConfigMap
			got := sendJSON(t, k.c, http.MethodGet, k.s.URL()+path, "")
			err := json.Unmarshal([]byte(got.body), &m)
			return err == nil && len(m.Data) == 1 && m.Data["ca.crt"] == string(k.s.CA()), got.body
		})
	}
	published()
	k.send(http.MethodPatch, path, `{"data":{"ca.crt":"x","other":"y"}}`, "Content-Type", "application/merge-patch+json")
	published()
	k.send(http.MethodDelete, path, "")
	published()
}

// TestRootCertificatesAreNotFoughtOver: another program that always publishes other certificates does not make the
// server write all the time.
func TestRootCertificatesAreNotFoughtOver(t *testing.T) {
	k := startControlled(t, "root-ca-certificate-publisher-controller")
	k.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"demo"}}`)
	const path = "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt"
	began := time.Now()
	corrected := 0
	for time.Since(began) < 3*time.Second {
		var m corev1.ConfigMap
		got := sendJSON(t, k.c, http.MethodGet, k.s.URL()+path, "")
		if err := json.Unmarshal([]byte(got.body), &m); err != nil {
			t.Fatal(err)
		}
		if m.Data["ca.crt"] != string(k.s.CA()) {
			time.Sleep(time.Millisecond)
			continue
		}
		corrected++
		k.send(http.MethodPatch, path, `{"data":{"ca.crt":"x"}}`, "Content-Type", "application/merge-patch+json")
	}
	// The first is the creation.
	if most := 2 + int(time.Since(began)/time.Second); corrected < 2 || corrected > most {
		t.Errorf("the certificates were published %d times, want 2 to %d", corrected, most)
	}
}
