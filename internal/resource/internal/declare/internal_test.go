package declare

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestInternal(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{(*metav1.LabelSelector)(nil), `null`},
		{&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, `{"matchLabels":{"a":"b"}}`},
		{&batchv1.PodFailurePolicy{}, `{"Rules":null}`},
		{batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{}}, `{"Rules":[]}`},
		{appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("25%"))}, `{"MaxUnavailable":null,"MaxSurge":"25%"}`},
		{corev1.ConfigMap{Data: map[string]string{"b": "1", "a": "2"}}.Data, `{"a":"2","b":"1"}`},
		{[]byte("hi"), `"aGk="`},
		{corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"x": "y"}}}.ObjectMeta,
			`{"labels":{"x":"y"}}`},
	} {
		if got := string(Internal(c.value)); got != c.want {
			t.Errorf("%T: got %s, want %s", c.value, got, c.want)
		}
	}
	none, empty := metav1.LabelSelector{}, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{}}
	if ExactText(none) == ExactText(empty) {
		t.Error("an empty list is as none")
	}
}
