package toleration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
)

func TestTolerations(t *testing.T) {
	const exists, noExecute = corev1.TolerationOpExists, corev1.TaintEffectNoExecute
	ready, reached := "node.kubernetes.io/not-ready:NoExecute:300", "node.kubernetes.io/unreachable:NoExecute:300"
	for name, c := range map[string]struct {
		sent []corev1.Toleration
		want []string
	}{
		"none":        {nil, []string{ready, reached}},
		"another key": {[]corev1.Toleration{{Key: "a", Operator: exists}}, []string{"a::", ready, reached}},
		"one of them": {
			[]corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: exists, Effect: noExecute, TolerationSeconds: ptr.To[int64](5)}},
			[]string{"node.kubernetes.io/not-ready:NoExecute:5", reached},
		},
		"all": {[]corev1.Toleration{{Operator: exists}}, []string{"::"}},
		"all of no effect": {
			[]corev1.Toleration{{Operator: exists, Effect: corev1.TaintEffectNoSchedule}},
			[]string{":NoSchedule:", ready, reached},
		},
		"all executions": {[]corev1.Toleration{{Operator: exists, Effect: noExecute}}, []string{":NoExecute:"}},
		"both": {
			[]corev1.Toleration{
				{Key: corev1.TaintNodeUnreachable, Operator: exists},
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpEqual, Value: "x", Effect: noExecute},
			},
			[]string{"node.kubernetes.io/unreachable::", "node.kubernetes.io/not-ready:NoExecute:"},
		},
	} {
		for _, operation := range []admission.Operation{admission.Create, admission.Update} {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: slices.Clone(c.sent)}}
			a := admissiontest.Creation(pods, pod)
			a.Operation = operation
			if err := Plugin(DefaultSeconds, DefaultSeconds).Mutate(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if got := shown(pod.Spec.Tolerations); !slices.Equal(got, c.want) {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
		}
	}
	pod := &corev1.Pod{}
	a := admissiontest.Change(pods, pod, &corev1.Pod{})
	a.Subresource = "status"
	if err := Plugin(DefaultSeconds, DefaultSeconds).Mutate(t.Context(), a); err != nil || pod.Spec.Tolerations != nil {
		t.Errorf("a subresource got %v, %v", pod.Spec.Tolerations, err)
	}
}

func shown(tolerations []corev1.Toleration) []string {
	var out []string
	for _, t := range tolerations {
		parts := []string{t.Key, string(t.Effect), ""}
		if t.TolerationSeconds != nil {
			parts[2] = fmt.Sprint(*t.TolerationSeconds)
		}
		out = append(out, strings.Join(parts, ":"))
	}
	return out
}
