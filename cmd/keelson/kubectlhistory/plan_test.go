package kubectlhistory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parse returns an object in YAML.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o, err := decode(body)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// object returns a candidate: apiVersion/kind name, with its UID being its name, its controlling owner (apiVersion/kind name),
// and more fields in YAML.
func object(t *testing.T, what, owner, more string) candidate {
	t.Helper()
	split := func(text string) (apiVersion, kind, name string) {
		path, name, _ := strings.Cut(text, " ")
		i := strings.LastIndex(path, "/")
		return path[:i], path[i+1:], name
	}
	apiVersion, kind, name := split(what)
	if more == "" {
		more = "{}"
	}
	o := parse(t, more)
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	_ = unstructured.SetNestedField(o.Object, name, "metadata", "uid")
	if owner != "" {
		apiVersion, kind, name := split(owner)
		_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{
			"apiVersion": apiVersion, "kind": kind, "name": name, "uid": name, "controller": true,
		}}, "metadata", "ownerReferences")
	}
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	return candidate{resource{Group: group, Version: version, Kind: kind, Name: strings.ToLower(kind) + "s", Namespaced: true}, o}
}

func TestPlanned(t *testing.T) {
	all := []candidate{
		object(t, "networking.k8s.io/v1/Ingress ing", "", ""),
		object(t, "v1/Pod web-1-x", "apps/v1/ReplicaSet web-1", ""),
		object(t, "v1/Pod alone", "", ""),
		object(t, "v1/Pod done", "", "status: {phase: Succeeded}"),
		object(t, "apps/v1/ReplicaSet web-1", "apps/v1/Deployment web", ""),
		object(t, "apps/v1/Deployment web", "example.com/v1/App app", ""),
		object(t, "v1/Service svc", "", ""),
		object(t, "discovery.k8s.io/v1/EndpointSlice svc-1", "v1/Service svc", ""),
		object(t, "discovery.k8s.io/v1/EndpointSlice mine", "", ""),
		object(t, "v1/ConfigMap kube-root-ca.crt", "", ""),
		object(t, "v1/ConfigMap of-app", "example.com/v1/App app", ""),
		object(t, "v1/ConfigMap settings", "", ""),
		object(t, "v1/ConfigMap dying", "", "metadata: {deletionTimestamp: '2026-11-01T12:00:00Z'}"),
		object(t, "v1/Secret token", "", "type: kubernetes.io/service-account-token"),
		object(t, "v1/ServiceAccount default", "", ""),
		object(t, "v1/ServiceAccount builder", "", ""),
		object(t, "example.com/v1/App app", "", ""),
		object(t, "batch/v1/Job old", "", "status: {conditions: [{type: Complete, status: 'True'}]}"),
		object(t, "batch/v1/Job running", "", ""),
		object(t, "batch/v1/Job scheduled", "batch/v1/CronJob nightly", ""),
		object(t, "batch/v1/CronJob nightly", "", ""),
		object(t, "v1/PersistentVolumeClaim data", "", ""),
		object(t, "rbac.authorization.k8s.io/v1/RoleBinding bind", "", ""),
		object(t, "rbac.authorization.k8s.io/v1/Role role", "", ""),
		object(t, "v1/Namespace ns", "", ""),
		object(t, "v1/Event ev", "", ""),
		object(t, "coordination.k8s.io/v1/Lease lease", "", ""),
		object(t, "v1/Pod kept-alive", "apps/v1/ReplicaSet alive", ""),
		object(t, "v1/Pod orphan", "apps/v1/ReplicaSet dead", ""),
	}
	lines := func(steps []step) (out []string) {
		for _, s := range steps {
			line := s.resource.Kind + " " + s.object.GetName()
			if s.skip != "" {
				line += ": " + s.skip
			}
			out = append(out, line)
		}
		return out
	}
	want := []string{
		"Namespace ns",
		"ServiceAccount builder",
		"ServiceAccount default: a controller makes it in each namespace",
		"Role role",
		"RoleBinding bind",
		"ConfigMap dying: it was being deleted",
		"ConfigMap kube-root-ca.crt: a controller makes it in each namespace",
		"App app", // before what it owns
		"ConfigMap of-app",
		"ConfigMap settings",
		"Secret token: its token was for a ServiceAccount that had another UID; make a new one",
		"PersistentVolumeClaim data",
		"Service svc",
		"CronJob nightly",
		"Deployment web",
		"Job old: it had finished, and would run again",
		"Job running",
		"Job scheduled: the CronJob nightly makes it again",
		"Pod alone",
		"Pod done: it had finished, and would run again",
		"Pod kept-alive: the ReplicaSet alive makes it again",
		"Pod orphan",
		"ReplicaSet web-1: the Deployment web makes it again",
		"Pod web-1-x: the ReplicaSet web-1 makes it again",
		"EndpointSlice mine",
		"EndpointSlice svc-1: the Service svc makes it again",
		"Event ev: Events report what happened, they do not come back",
		"Ingress ing",
		"Lease lease: who needs a Lease takes a new one",
	}
	got := lines(planned(all, map[string]string{"alive": "alive"}, false))
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	named := lines(planned([]candidate{
		object(t, "v1/Pod done", "", "status: {phase: Failed}"), object(t, "v1/Pod x", "apps/v1/ReplicaSet alive", ""),
	}, map[string]string{"alive": "alive"}, true))
	if want := []string{"Pod done", "Pod x: the ReplicaSet alive makes it again"}; !slices.Equal(named, want) {
		t.Errorf("named: %q", named)
	}
	circle := []candidate{object(t, "v1/ConfigMap a", "v1/ConfigMap b", ""), object(t, "v1/ConfigMap b", "v1/ConfigMap a", "")}
	if got := lines(planned(circle, nil, false)); len(got) != 2 {
		t.Errorf("a circle of owners: %q", got)
	}
}

// TestLeftOut has the rules that depend on labels and annotations.
func TestLeftOut(t *testing.T) {
	for _, c := range []struct{ what, more, want string }{
		{"v1/Endpoints a", "metadata: {labels: {endpoints.kubernetes.io/managed-by: endpoint-controller}}", "Service"},
		{"v1/Endpoints a", "metadata: {annotations: {endpoints.kubernetes.io/last-change-trigger-time: x}}", "Service"},
		{"v1/Endpoints a", "", ""},
		{"discovery.k8s.io/v1/EndpointSlice a",
			"metadata: {labels: {endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}", "Service"},
		{"v1/Pod a", "metadata: {annotations: {kubernetes.io/config.mirror: x}}", "kubelet"},
		{"v1/Secret a", "type: Opaque", ""},
		{"example.com/v1/Event a", "", ""},
		{"example.com/v1/Job a", "metadata: {deletionTimestamp: '2026-11-01T12:00:00Z'}", "being deleted"},
		{"v1/Namespace a", "metadata: {deletionTimestamp: '2026-11-01T12:00:00Z'}", ""},
	} {
		o := object(t, c.what, "", c.more)
		if got := leftOut(&o); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.what, c.more, got, c.want)
		}
	}
}

func TestRewire(t *testing.T) {
	o := parse(t, `metadata: {ownerReferences: [{kind: A, name: a, uid: old-a}, {kind: B, name: b, uid: old-b}]}`)
	dropped := rewire(o, map[string]string{"old-a": "new-a"})
	if got := fmt.Sprint(dropped, o.GetOwnerReferences()[0].UID, len(o.GetOwnerReferences())); got != "[B b]new-a1" && got != "[B b] new-a 1" {
		t.Error(got)
	}
	if rewire(o, nil); o.GetOwnerReferences() != nil {
		t.Error("a dead owner is kept")
	}
}
