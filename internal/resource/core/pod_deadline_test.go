package core

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestDeadlineUpdate changes the deadline of a pod together with its tolerations. As in kube-apiserver, a deadline that is
// out of range or later than before ends the validation of changes; one that is gone does not.
func TestDeadlineUpdate(t *testing.T) {
	const tolerations = "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
	pod := func(deadline *int64, tolerations ...corev1.Toleration) *corev1.Pod {
		return annotatedPod(nil, func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds, s.Tolerations = deadline, tolerations })
	}
	toleration := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	for _, c := range []struct {
		name    string
		is, was *int64
		want    []string
	}{
		{"none", nil, nil, []string{tolerations}},
		{"earlier", new(int64(1)), new(int64(2)), []string{tolerations}},
		{"new", new(int64(1)), nil, []string{tolerations}},
		{"negative", new(int64(-1)), nil,
			[]string{"spec.activeDeadlineSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive"}},
		{"large", new(int64(math.MaxInt32 + 1)), nil,
			[]string{"spec.activeDeadlineSeconds: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive"}},
		{"later", new(int64(2)), new(int64(1)),
			[]string{"spec.activeDeadlineSeconds: Invalid value: 2: must be less than or equal to previous value"}},
		{"gone", nil, new(int64(1)), []string{
			"spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value", tolerations}},
	} {
		errs := validatePodChanges(pod(c.is), pod(c.was, toleration), field.NewPath("spec"))
		checkErrors(t, c.name, errs, c.want...)
	}
}
