package node

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/access/auth/rbac"
	"github.com/keelson-dev/keelson/internal/access/auth/rbac/policy"
	"github.com/keelson-dev/keelson/internal/api/write/writetest"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// writer writes objects.
var writer = writetest.New(nil)

func authorizer(t *testing.T) (*Authorizer, *registry.Registry) {
	t.Helper()
	return authorizerWith(t, features.Gates{})
}

func authorizerWith(t *testing.T, gates features.Gates) (*Authorizer, *registry.Registry) {
	t.Helper()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(cache.Options{Store: store})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		c.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	reg, err := registry.New(resource.Kinds(gates), store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.NodeRules(gates)
	if err != nil {
		t.Fatal(err)
	}
	return New(ctx, Options{
		Registry: reg, Rules: rbac.Compile(rules), Log: slog.Default(), Observe: func(string, time.Duration) {},
		Background: func(_ string, run func(context.Context)) { running.Go(func() { run(ctx) }) },
	}), reg
}

var kubelet = &request.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}

func TestKubeletReadsSecretsOfItsPodsAtOnce(t *testing.T) {
	a, reg := authorizer(t)
	ask := func() (authz.Decision, string) {
		t.Helper()
		decision, reason, err := a.Authorize(t.Context(), authz.Attributes{User: kubelet, Info: &request.Info{
			Verb: "get", Resource: "secrets", Namespace: "ns", Name: "s",
		}})
		if err != nil {
			t.Fatal(err)
		}
		return decision, reason
	}
	if decision, reason := ask(); decision != authz.NoOpinion ||
		reason != "no relationship found between node 'n1' and this object" {
		t.Errorf("before: %v %q", decision, reason)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
	}}}
	pods := reg.Resource(corev1.Resource("pods"))
	pods.Kind.Version("v1").Default(p)
	if _, err := writer.Create(t.Context(), pods, "ns", p, writetest.Options{}); err != nil {
		t.Fatal(err)
	}
	if decision, reason := ask(); decision != authz.Allow {
		t.Errorf("with a pod: %v %q", decision, reason)
	}
	zero := int64(0)
	if _, err := writer.Delete(t.Context(), pods, "ns", "p", &metav1.DeleteOptions{GracePeriodSeconds: &zero},
		nil); err != nil {
		t.Fatal(err)
	}
	l, err := a.graph()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range l.informers {
		if err := f.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if decision, reason := ask(); decision != authz.NoOpinion {
		t.Errorf("without the pod: %v %q", decision, reason)
	}
}

func TestServersWithoutNodesKeepNoObjects(t *testing.T) {
	a, reg := authorizer(t)
	_, _, err := a.Authorize(t.Context(), authz.Attributes{
		User: &request.User{Name: "dave"}, Info: &request.Info{Verb: "get", Resource: "secrets", Namespace: "ns", Name: "s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if reg.Resource(corev1.Resource("pods")).Reader.Loaded() {
		t.Error("pods were loaded for a user that is no node")
	}
}

func TestNodeDecisions(t *testing.T) {
	a, _ := authorizer(t)
	const unrelated = "no relationship found between node 'n1' and this object"
	for _, c := range []struct {
		info     request.Info
		selector string
		want     string // the reason of a refusal, "" for an Allow
	}{
		{info: request.Info{Verb: "update", Resource: "secrets", Namespace: "ns", Name: "s"},
			want: "can only read resources of this type"},
		{info: request.Info{Verb: "get", Resource: "secrets", Namespace: "ns", Name: "s", Subresource: "x"},
			want: "cannot read subresource"},
		{info: request.Info{Verb: "list", Resource: "configmaps"}, want: "can only read namespaced object of this type"},
		{info: request.Info{Verb: "list", Resource: "configmaps", Namespace: "ns"}, want: "No Object name found"},
		{info: request.Info{Verb: "list", Resource: "persistentvolumes"},
			want: "can only get individual resources of this type"},
		{info: request.Info{Verb: "get", Resource: "persistentvolumes", Name: "v", Subresource: "status"},
			want: "cannot get subresource"},
		{info: request.Info{Verb: "get", Resource: "persistentvolumes", Name: "v"}, want: unrelated},
		{info: request.Info{Verb: "get", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "c",
			Subresource: "status"}, want: "can only get/update/patch this type"},
		{info: request.Info{Verb: "patch", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "c",
			Subresource: "status"}, want: unrelated},
		{info: request.Info{Verb: "get", Group: "resource.k8s.io", Resource: "resourceclaims", Namespace: "ns", Name: "c"},
			want: unrelated},
		{info: request.Info{Verb: "get", Group: "storage.k8s.io", Resource: "volumeattachments", Name: "a"}, want: unrelated},
		{info: request.Info{Verb: "create", Resource: "serviceaccounts", Namespace: "ns"},
			want: "can only create tokens for individual service accounts"},
		{info: request.Info{Verb: "create", Resource: "serviceaccounts", Namespace: "ns", Name: "a"},
			want: "can only create token subresource of serviceaccount"},
		{info: request.Info{Verb: "create", Resource: "serviceaccounts", Namespace: "ns", Name: "a", Subresource: "token"},
			want: unrelated},
		{info: request.Info{Verb: "list", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease"},
			want: "can only get, create, update, patch, or delete a node lease"},
		{info: request.Info{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "ns", Name: "n1"},
			want: `can only access leases in the "kube-node-lease" system namespace`},
		{info: request.Info{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease",
			Name: "n2"}, want: "can only access node lease with the same name as the requesting node"},
		{info: request.Info{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease",
			Name: "n1"}},
		{info: request.Info{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease"}},
		{info: request.Info{Verb: "list", Group: "storage.k8s.io", Resource: "csinodes"},
			want: "can only get, create, update, patch, or delete a CSINode"},
		{info: request.Info{Verb: "get", Group: "storage.k8s.io", Resource: "csinodes", Name: "n2"},
			want: "can only access CSINode with the same name as the requesting node"},
		{info: request.Info{Verb: "get", Group: "storage.k8s.io", Resource: "csinodes", Name: "n1", Subresource: "x"},
			want: "cannot authorize CSINode subresources"},
		{info: request.Info{Verb: "patch", Group: "storage.k8s.io", Resource: "csinodes", Name: "n1"}},
		{info: request.Info{Verb: "create", Group: "resource.k8s.io", Resource: "resourceslices"}},
		{info: request.Info{Verb: "get", Group: "resource.k8s.io", Resource: "resourceslices", Name: "s"}, want: unrelated},
		{info: request.Info{Verb: "list", Group: "resource.k8s.io", Resource: "resourceslices"},
			want: "can only list/watch/deletecollection resourceslices with nodeName field selector"},
		{info: request.Info{Verb: "list", Group: "resource.k8s.io", Resource: "resourceslices"},
			selector: "fieldSelector=spec.nodeName%3Dn1"},
		{info: request.Info{Verb: "list", Group: "resource.k8s.io", Resource: "resourceslices"},
			selector: "fieldSelector=spec.nodeName%3Dn2",
			want:     "can only list/watch/deletecollection resourceslices with nodeName field selector"},
		{info: request.Info{Verb: "get", Resource: "nodes", Name: "n1"}},
		{info: request.Info{Verb: "get", Resource: "nodes", Name: "n2"},
			want: "node 'n1' cannot read 'n2', only its own Node object"},
		{info: request.Info{Verb: "list", Resource: "nodes"},
			want: "node 'n1' cannot read all nodes, only its own Node object"},
		{info: request.Info{Verb: "patch", Resource: "nodes", Name: "n1", Subresource: "status"}},
		{info: request.Info{Verb: "list", Resource: "pods"},
			want: "can only list/watch pods with spec.nodeName field selector"},
		{info: request.Info{Verb: "watch", Resource: "pods"}, selector: "fieldSelector=spec.nodeName%3Dn1"},
		{info: request.Info{Verb: "watch", Resource: "pods"}, selector: "fieldSelector=spec.nodeName!%3Dn1",
			want: "can only list/watch pods with spec.nodeName field selector"},
		{info: request.Info{Verb: "get", Resource: "pods", Namespace: "ns", Name: "p"}, want: unrelated},
		{info: request.Info{Verb: "create", Resource: "pods", Namespace: "ns", Name: "p", Subresource: "eviction"}},
		{info: request.Info{Verb: "list", Resource: "services"}},
		{info: request.Info{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}},
	} {
		decision, reason, err := a.Authorize(t.Context(),
			authz.Attributes{User: kubelet, Info: &c.info, Selectors: authz.ParseSelectors(c.selector)})
		if err != nil {
			t.Fatal(err)
		}
		if (decision == authz.Allow) != (c.want == "") || reason != c.want {
			t.Errorf("%+v %s: %v %q, want %q", c.info, c.selector, decision, reason, c.want)
		}
	}
	for _, info := range []request.Info{
		{Verb: "deletecollection", Resource: "pods"}, {Verb: "delete", Resource: "nodes", Name: "n1"},
		{Verb: "list", Group: "apps", Resource: "deployments"},
	} {
		if decision, reason, _ := a.Authorize(t.Context(),
			authz.Attributes{User: kubelet, Info: &info}); decision == authz.Allow || reason != "" {
			t.Errorf("%+v: %v %q", info, decision, reason)
		}
	}
}

// TestPodCertificateRequestsOfNodes asks about PodCertificateRequests with the feature gate. Without it, the authorizer
// has no opinion.
func TestPodCertificateRequestsOfNodes(t *testing.T) {
	ask := func(a *Authorizer, info request.Info, selector string) string {
		t.Helper()
		info.Group, info.Resource, info.Namespace = "certificates.k8s.io", "podcertificaterequests", "ns"
		decision, reason, err := a.Authorize(t.Context(),
			authz.Attributes{User: kubelet, Info: &info, Selectors: authz.ParseSelectors(selector)})
		switch {
		case err != nil:
			t.Fatal(err)
		case decision == authz.Allow:
			return "allowed"
		}
		return reason
	}
	off, err := features.Parse([]string{"PodCertificateRequest=false"}, release.Of(36))
	if err != nil {
		t.Fatal(err)
	}
	without, _ := authorizerWith(t, off)
	if got := ask(without, request.Info{Verb: "create"}, ""); got != "" {
		t.Errorf("without the feature gate: %s", got)
	}
	a, reg := authorizerWith(t, features.Gates{})
	for name, node := range map[string]string{"own": "n1", "other": "n2"} {
		c := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.NodeName = types.NodeName(node)
		c.Namespace = "ns"
		if _, err := reg.Resource(podCertificateRequests).Writer.Insert(t.Context(), c, registry.Commit{}); err != nil {
			t.Fatal(err)
		}
	}
	const byNode = "can only list/watch podcertificaterequests with nodeName field selector"
	for _, c := range []struct {
		info           request.Info
		selector, want string
	}{
		{request.Info{Verb: "create"}, "", "allowed"},
		{request.Info{Verb: "get", Name: "own"}, "", "allowed"},
		{request.Info{Verb: "get", Name: "other"}, "", "no relationship found between node 'n1' and this object"},
		{request.Info{Verb: "list"}, "", byNode},
		{request.Info{Verb: "watch"}, "fieldSelector=spec.nodeName%3Dn2", byNode},
		{request.Info{Verb: "list"}, "fieldSelector=spec.nodeName%3Dn1", "allowed"},
		{request.Info{Verb: "watch"}, "fieldSelector=spec.nodeName%3Dn1", "allowed"},
		{request.Info{Verb: "delete", Name: "own"}, "", "nodes may not delete podcertificaterequests"},
		{request.Info{Verb: "get", Name: "own", Subresource: "status"}, "",
			"nodes may not access the status subresource of PodCertificateRequests"},
	} {
		if got := ask(a, c.info, c.selector); got != c.want {
			t.Errorf("%+v %s: %q, want %q", c.info, c.selector, got, c.want)
		}
	}
}

func TestNodeName(t *testing.T) {
	for _, c := range []struct {
		user request.User
		node string
		is   bool
	}{
		{request.User{Name: "system:node:n", Groups: []string{"system:nodes"}}, "n", true},
		{request.User{Name: "system:node:n", Groups: []string{"system:authenticated"}}, "n", false},
		{request.User{Name: "n", Groups: []string{"system:nodes"}}, "n", false},
		{request.User{Name: "system:node:", Groups: []string{"system:nodes"}}, "", true},
	} {
		if node, is := NodeName(&c.user); is != c.is || is && node != c.node {
			t.Errorf("%v: %q %v", c.user, node, is)
		}
	}
	a, _ := authorizer(t)
	_, reason, _ := a.Authorize(t.Context(), authz.Attributes{
		User: &request.User{Name: "system:node:", Groups: []string{"system:nodes"}},
		Info: &request.Info{Verb: "list", Resource: "services"},
	})
	if reason != `unknown node for user "system:node:"` {
		t.Errorf("a node without a name: %q", reason)
	}
}
