package core

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// TestMirrorPods holds what may be written of mirror pods, by every validation of a pod.
func TestMirrorPods(t *testing.T) {
	pod := func(node string, annotations map[string]string, claims ...corev1.PodResourceClaim) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: maps.Clone(annotations)},
			Spec:       corev1.PodSpec{NodeName: node, ResourceClaims: claims},
		}
	}
	has := func(errs field.ErrorList, message string) bool {
		for _, err := range errs {
			if err.Detail == message {
				return true
			}
		}
		return false
	}
	const mirror = corev1.MirrorPodAnnotationKey
	marked, changed, armored := map[string]string{mirror: "x"}, map[string]string{mirror: "y"},
		map[string]string{appArmorPrefix + "c": "unconfined"}
	for _, c := range []struct {
		name     string
		is, was  *corev1.Pod
		want     string
		onCreate bool
	}{
		{"added", pod("n", marked), pod("n", nil), "may not add mirror pod annotation", false},
		{"changed", pod("n", changed), pod("n", marked), "may not remove or update mirror pod annotation", false},
		{"removed", pod("n", nil), pod("n", marked), "may not remove or update mirror pod annotation", false},
		{"without a node", pod("", marked), pod("", marked), "must set spec.nodeName if mirror pod annotation is set", true},
		{"AppArmor added", pod("n", armored), pod("n", nil), "may not add AppArmor annotations", false},
	} {
		if !has(validatePodUpdate(c.is, c.was, podRules{}), c.want) {
			t.Errorf("%s by an update: %v", c.name, validatePodUpdate(c.is, c.was, podRules{}))
		}
		if !has(defaultGates.validatePodStatusUpdate(c.is, c.was), c.want) {
			t.Errorf("%s by the status: %v", c.name, defaultGates.validatePodStatusUpdate(c.is, c.was))
		}
		if has(validatePod(c.is, podRules{}), c.want) != c.onCreate {
			t.Errorf("%s: create: %v", c.name, validatePod(c.is, podRules{}))
		}
	}
	claim := pod("n", marked, corev1.PodResourceClaim{Name: "a"})
	for name, errs := range map[string]field.ErrorList{"create": validatePod(claim, podRules{}),
		"update": validatePodUpdate(claim, claim, podRules{})} {
		if !has(errs, "static pods do not support resource claims") {
			t.Errorf("claims, %s: %v", name, errs)
		}
	}
	if errs := validateEphemeralContainersUpdate(pod("n", marked), pod("n", marked), podRules{}); !has(errs,
		"static pods do not support ephemeral containers") {
		t.Errorf("ephemeral containers: %v", errs)
	}
	if errs := defaultGates.validateResize(pod("n", marked), pod("n", marked)); !has(errs, "static pods cannot be resized") {
		t.Errorf("resize: %v", errs)
	}
	if errs := validateImmutableAnnotations(pod("n", marked), pod("n", marked)); len(errs) > 0 {
		t.Errorf("an annotation that stays: %v", errs)
	}
}
