package taint

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func TestTaint(t *testing.T) {
	other := corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoExecute}
	noExecute := corev1.Taint{Key: notReady.Key, Effect: corev1.TaintEffectNoExecute}
	for name, c := range map[string]struct{ sent, want []corev1.Taint }{
		"none":         {nil, []corev1.Taint{notReady}},
		"another":      {[]corev1.Taint{other}, []corev1.Taint{other, notReady}},
		"same":         {[]corev1.Taint{notReady}, []corev1.Taint{notReady}},
		"other effect": {[]corev1.Taint{noExecute}, []corev1.Taint{noExecute, notReady}},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: c.sent}}
		if err := Plugin().Mutate(t.Context(), admissiontest.Creation(nodes, node)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(node.Spec.Taints, c.want) {
			t.Errorf("%s: got %v, want %v", name, node.Spec.Taints, c.want)
		}
	}
	node := &corev1.Node{}
	for _, a := range []*admission.Attributes{
		admissiontest.Change(nodes, node, &corev1.Node{}),
		{Resource: corev1.Resource("pods"), Object: &corev1.Pod{}},
	} {
		if err := Plugin().Mutate(t.Context(), a); err != nil || node.Spec.Taints != nil {
			t.Errorf("%+v: %v, taints %v", a, err, node.Spec.Taints)
		}
	}
}
