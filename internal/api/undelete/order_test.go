package undelete

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/api/discovery"
)

// parse returns an object in YAML.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := kjson.Unmarshal(body, &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// kindOf returns a resource, which is built in unless its group is example.com.
func kindOf(apiVersion, kind string) *resource {
	gv, _ := schema.ParseGroupVersion(apiVersion)
	return &resource{builtIn: gv.Group != "example.com", Resource: discovery.Resource{
		GroupVersionResource: gv.WithResource(strings.ToLower(kind) + "s"), Kind: kind, Namespaced: true,
	}}
}

// object returns a candidate. what is its "apiVersion/kind name", and its UID is its name. owner is the same text
// for its controlling owner, and more has more fields in YAML.
func object(t *testing.T, what, owner, more string) *candidate {
	t.Helper()
	split := func(text string) (apiVersion, kind, name string) {
		path, name, _ := strings.Cut(text, " ")
		i := strings.LastIndex(path, "/")
		return path[:i], path[i+1:], name
	}
	apiVersion, kind, name := split(what)
	o := parse(t, cmp.Or(more, "{}"))
	o.SetName(name)
	r := kindOf(apiVersion, kind)
	c := &candidate{resource: r, name: name, uid: types.UID(name), out: leftOut(r, o)}
	if owner != "" {
		apiVersion, kind, name := split(owner)
		c.owners = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
	}
	return c
}

func run(candidates []*candidate, named bool, live ...types.UID) (lines []string) {
	o := &order{named: named, live: map[ownerKey]types.UID{}, builtIn: func(group string) bool { return group != "example.com" }}
	for _, c := range candidates {
		for i := range c.owners {
			if owner := &c.owners[i]; slices.Contains(live, owner.UID) {
				o.live[keyOf(c.namespace, owner)] = owner.UID
			}
		}
	}
	for _, s := range o.run(candidates) {
		line := s.Kind + " " + s.name
		if s.skip != "" {
			line += ": " + s.skip
		}
		lines = append(lines, line)
	}
	return lines
}

func TestPlanned(t *testing.T) {
	all := []*candidate{
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
		object(t, "apiextensions.k8s.io/v1/CustomResourceDefinition apps.example.com", "", ""),
		object(t, "lifecycle.k8s.io/v1alpha1/EvictionRequest evict", "", ""),
		object(t, "v1/Event ev", "", ""),
		object(t, "coordination.k8s.io/v1/Lease lease", "", ""),
		object(t, "v1/Pod kept-alive", "apps/v1/ReplicaSet alive", ""),
		object(t, "v1/Pod orphan", "apps/v1/ReplicaSet dead", ""),
	}
	want := []string{
		"CustomResourceDefinition apps.example.com",
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
		"EvictionRequest evict",
		"Ingress ing",
		"Lease lease: who needs a Lease takes a new one",
	}
	got := run(all, false, "alive")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	named := run([]*candidate{
		object(t, "v1/Pod done", "", "status: {phase: Failed}"), object(t, "v1/Pod x", "apps/v1/ReplicaSet alive", ""),
	}, true, "alive")
	if want := []string{"Pod done", "Pod x: the ReplicaSet alive makes it again"}; !slices.Equal(named, want) {
		t.Errorf("named: %q", named)
	}
	circle := []*candidate{object(t, "v1/ConfigMap a", "v1/ConfigMap b", ""), object(t, "v1/ConfigMap b", "v1/ConfigMap a", "")}
	if got := run(circle, false); len(got) != 2 {
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
		if got := object(t, c.what, "", c.more).out; got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.what, c.more, got, c.want)
		}
	}
}

func TestExisting(t *testing.T) {
	pod := object(t, "v1/Pod web", "", "")
	pod.exists = true
	for _, named := range []bool{true, false} {
		if got := run([]*candidate{pod, object(t, "v1/Pod other", "", "")}, named); !slices.Equal(got, []string{"Pod other", "Pod web: " + Exists}) {
			t.Errorf("%q", got)
		}
	}
}

func TestRewire(t *testing.T) {
	o := parse(t, `metadata: {ownerReferences: [{kind: A, name: a, uid: old-a}, {kind: B, name: b, uid: old-b}]}`)
	dropped := rewire(o, func(owner metav1.OwnerReference) types.UID {
		return map[types.UID]types.UID{"old-a": "new-a"}[owner.UID]
	})
	if !slices.Equal(dropped, []string{"B b"}) || len(o.GetOwnerReferences()) != 1 || o.GetOwnerReferences()[0].UID != "new-a" {
		t.Errorf("%q %v", dropped, o.GetOwnerReferences())
	}
	if rewire(o, func(metav1.OwnerReference) types.UID { return "" }); o.GetOwnerReferences() != nil {
		t.Error("a dead owner is kept")
	}
}

// TestRefusedOwners: if the object of a step cannot be read, the step creates nothing, and the objects that it
// owns come back without it.
func TestRefusedOwners(t *testing.T) {
	owner, owned := object(t, "v1/ConfigMap owner", "", ""), object(t, "v1/Secret owned", "v1/ConfigMap owner", "")
	s := &search{steps: []step{{owner, ""}, {owned, ""}}}
	if uid := s.ownerUID("")(owned.owners[0]); uid != "owner" {
		t.Errorf("of a step that is going to be taken: %q", uid)
	}
	st := s.refuse(Step{UID: owner.uid}, errors.New("no conversion"))
	if uid := s.ownerUID("")(owned.owners[0]); uid != "" || !st.Refused || !strings.Contains(st.Skip, "no conversion") {
		t.Errorf("of a refused step: %q, %+v", uid, st)
	}
}

// TestBudget: memory is counted in parts, after a refusal no more is taken, and the number of examined objects is
// limited.
func TestBudget(t *testing.T) {
	counted, most := 0, 3*heldAtOnce
	b := &budget{ctx: t.Context(), count: func(n int) error {
		if counted += n; counted > most {
			return errors.New("too much")
		}
		return nil
	}}
	held := 0
	for b.hold(candidateBytes) == nil {
		held += candidateBytes
	}
	if held < most-heldAtOnce || held > most+heldAtOnce || b.examine() == nil || b.hold(1) == nil {
		t.Errorf("%d bytes were held with a limit of %d", held, most)
	}
	b = &budget{ctx: t.Context()}
	n := 0
	for b.examine() == nil {
		n++
	}
	if n != maxExamined || !kerrors.IsBadRequest(b.err) {
		t.Errorf("%d were examined: %v", n, b.err)
	}
}
