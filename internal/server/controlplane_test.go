package server

import (
	"encoding/json"
	"net"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// storedIn returns an object from a server's store, or nil if it does not exist.
func storedIn[T registry.Object](t *testing.T, s *Server, gr schema.GroupResource, namespace, name string) T {
	t.Helper()
	var none T
	obj, err := s.api.registry.Stored(t.Context(), gr, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	if obj == nil {
		return none
	}
	return obj.(T)
}

func TestEndpointsOfTheAPI(t *testing.T) {
	c := testConfig(t)
	c.Network.ControlPlane.AdvertiseAddress = "192.0.2.7"
	c.Storage.DataDir, c.Storage.Backend = "", config.StorageMemory
	s := start(t, c)
	keeper := s.controlPlane.keeper
	get := func() (*corev1.Endpoints, *discoveryv1.EndpointSlice) {
		return storedIn[*corev1.Endpoints](t, s, corev1.Resource("endpoints"), "default", "kubernetes"),
			storedIn[*discoveryv1.EndpointSlice](t, s, discoveryv1.Resource("endpointslices"), "default", "kubernetes")
	}
	var endpoints *corev1.Endpoints
	var slice *discoveryv1.EndpointSlice
	wait.Until(t, "the endpoints, which are made when the server runs", func() bool {
		endpoints, slice = get()
		return endpoints != nil && slice != nil
	})
	port := int32(s.listener.Addr().(*net.TCPAddr).Port)
	if e := endpoints.Subsets[0]; e.Addresses[0].IP != "192.0.2.7" || e.Ports[0].Port != port ||
		e.Ports[0].Name != "https" || endpoints.Labels[discoveryv1.LabelSkipMirror] != "true" {
		t.Errorf("%+v", endpoints)
	}
	if slice.Endpoints[0].Addresses[0] != "192.0.2.7" || *slice.Ports[0].Port != port ||
		!*slice.Endpoints[0].Conditions.Ready {
		t.Errorf("%+v", slice)
	}
	if err := keeper.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if endpoints, slice = get(); len(endpoints.Subsets) != 0 || len(slice.Endpoints) != 0 {
		t.Errorf("after the end: %+v %+v", endpoints.Subsets, slice.Endpoints)
	}
}

func TestServerOnLoopbackHasNoEndpoints(t *testing.T) {
	s := start(t, testConfig(t))
	if s.controlPlane.keeper.Endpoints != nil {
		t.Error("127.0.0.1 is published")
	}
}

// TestObjectsOfTheServerAreRestored checks that deleted or changed objects of the server are restored by the next
// check, except for those that an operator has taken over.
func TestObjectsOfTheServerAreRestored(t *testing.T) {
	s := start(t, testConfig(t))
	keeper, operator := s.controlPlane.keeper, s.api.client.As("operator")
	schemas, services := flowcontrolv1.Resource("flowschemas"), corev1.Resource("services")
	change := func(name string, f func(*flowcontrolv1.FlowSchema)) {
		t.Helper()
		ref := client.Ref{Resource: flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas"), Name: name}
		_, err := operator.Update(t.Context(), client.UpdateRequest{Ref: ref, Change: func(obj registry.Object) error {
			f(obj.(*flowcontrolv1.FlowSchema))
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	change("system-nodes", func(f *flowcontrolv1.FlowSchema) { f.Spec.MatchingPrecedence = 7 })
	change("global-default", func(f *flowcontrolv1.FlowSchema) {
		f.Spec.MatchingPrecedence = 7
		f.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = "false"
	})
	old := &flowcontrolv1.FlowSchema{}
	old.Name, old.Annotations = "of-an-old-release", map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}
	own := &flowcontrolv1.FlowSchema{}
	own.Name = "own"
	for _, f := range []*flowcontrolv1.FlowSchema{old, own} {
		f.Spec.PriorityLevelConfiguration.Name, f.Spec.MatchingPrecedence = "none", 100
		if _, err := operator.Create(
			t.Context(), client.CreateRequest{Resource: flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas"), Object: f},
		); err != nil {
			t.Fatal(err)
		}
	}
	ref := client.Ref{
		Resource: corev1.SchemeGroupVersion.WithResource("services"), Namespace: "default", Name: "kubernetes",
	}
	if _, err := operator.Delete(t.Context(), client.DeleteRequest{Ref: ref}); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int32{"system-nodes": 500, "global-default": 7} {
		if got := storedIn[*flowcontrolv1.FlowSchema](t, s, schemas, "", name).Spec.MatchingPrecedence; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if storedIn[*flowcontrolv1.FlowSchema](t, s, schemas, "", "of-an-old-release") != nil {
		t.Error("what is no default any more is still there")
	}
	if f := storedIn[*flowcontrolv1.FlowSchema](t, s, schemas, "", "own"); f == nil || len(f.Status.Conditions) != 1 ||
		f.Status.Conditions[0].Reason != "NotFound" {
		t.Errorf("%+v", f)
	}
	if svc := storedIn[*corev1.Service](t, s, services, "default", "kubernetes"); svc == nil ||
		svc.Spec.ClusterIP != "10.0.0.1" || !slices.Equal(svc.Spec.ClusterIPs, []string{"10.0.0.1"}) {
		t.Errorf("%+v", svc)
	}
}

// TestNothingIsWrittenTwice checks that a check of objects that are as they should be writes nothing.
func TestNothingIsWrittenTwice(t *testing.T) {
	s := start(t, testConfig(t))
	versions := func() map[string]string {
		out := map[string]string{}
		for _, o := range []struct {
			gr              schema.GroupResource
			namespace, name string
		}{
			{flowcontrolv1.Resource("flowschemas"), "", "catch-all"},
			{flowcontrolv1.Resource("prioritylevelconfigurations"), "", "exempt"},
			{corev1.Resource("services"), "default", "kubernetes"},
			{corev1.Resource("configmaps"), "kube-system", "extension-apiserver-authentication"},
			{schedulingv1.Resource("priorityclasses"), "", "system-node-critical"},
			{networkingv1.Resource("servicecidrs"), "", "kubernetes"},
			{coordinationv1.Resource("leases"), "kube-system", bootstrap.ServerName(s.controlPlane.keeper.Hostname)},
		} {
			out[o.gr.String()] = storedIn[registry.Object](t, s, o.gr, o.namespace, o.name).GetResourceVersion()
		}
		return out
	}
	before := versions()
	if err := s.controlPlane.keeper.Start(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for resource, version := range versions() {
		if version != before[resource] || version == "" {
			t.Errorf("%s: %s after %s", resource, version, before[resource])
		}
	}
}

func TestTrustIsPublished(t *testing.T) {
	s := start(t, testConfig(t))
	a := apitest.Send(
		t, httpClient(t, s, true), "GET",
		s.URL()+"/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", "",
	)
	var c corev1.ConfigMap
	if err := json.Unmarshal([]byte(a.Body), &c); err != nil ||
		c.Data["client-ca-file"] != string(s.authentication.Authorities.Clients.PEM()) {
		t.Errorf("%d %s %v", a.Status, a.Body, err)
	}
}
