package podtopologylabels

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func TestLabels(t *testing.T) {
	p := Plugin(admissiontest.Objects{nodes: {
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{
			"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/rack": "k",
		}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "nowhere", Labels: map[string]string{"a": "b"}}},
	}})
	labeled := metav1.ObjectMeta{Name: "p", Labels: map[string]string{"own": "x", "topology.kubernetes.io/zone": "mine"}}
	pod := func(meta metav1.ObjectMeta, node string) registry.Object {
		return &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PodSpec{NodeName: node}}
	}
	binding := func(kind, node string) registry.Object {
		return &corev1.Binding{Target: corev1.ObjectReference{Kind: kind, Name: node}}
	}
	both := map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
	for name, c := range map[string]struct {
		subresource string
		obj         registry.Object
		want        map[string]string
	}{
		"pod with a node": {"", pod(metav1.ObjectMeta{}, "here"), both},
		"pod with labels": {"", pod(labeled, "here"), map[string]string{
			"own": "x", "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r",
		}},
		"pod without a node":           {"", pod(labeled, ""), labeled.Labels},
		"pod with a missing node":      {"", pod(labeled, "missing"), labeled.Labels},
		"pod with a node without zone": {"", pod(metav1.ObjectMeta{}, "nowhere"), nil},
		"binding":                      {"binding", binding("Node", "here"), both},
		"binding without kind":         {"binding", binding("", "here"), nil},
		"binding to something else":    {"binding", binding("Minion", "here"), nil},
		"binding to a missing node":    {"binding", binding("Node", "missing"), nil},
		"another subresource of a pod": {"eviction", pod(metav1.ObjectMeta{}, "here"), nil},
	} {
		a := admissiontest.Creation(pods, c.obj)
		a.Subresource = c.subresource
		for range 2 {
			if err := p.Mutate(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if got := c.obj.GetLabels(); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
	for _, a := range []*admission.Attributes{
		admissiontest.Change(pods, pod(labeled, "here"), pod(labeled, "")),
		admissiontest.Creation(corev1.Resource("bindings"), binding("Node", "here")),
	} {
		before := fmt.Sprint(a.Object.GetLabels())
		if err := p.Mutate(t.Context(), a); err != nil || fmt.Sprint(a.Object.GetLabels()) != before {
			t.Errorf("%v of %v: %v, %v", a.Operation, a.Resource, a.Object.GetLabels(), err)
		}
	}
}
