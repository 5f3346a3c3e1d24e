package core

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

func TestStatusOfClaim(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{
		AllocatedResources: resources("cpu", "1"),
	}}
	const want = `status.allocatedResources: Unsupported value: "cpu": supported values: "storage"`
	errs := persistentVolumeClaims(features.Gates{}).Strategy.ValidateStatusUpdate(t.Context(), claim, claim)
	if len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("got %v, want %s", errs, want)
	}
}

func TestEphemeralContainersInTemplate(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "x"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "c", Image: "x", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
		}}},
	}}
	DefaultPodTemplate(template)
	want := map[string]bool{
		"spec.ephemeralContainers": true, "spec.ephemeralContainers[0].name": true, "spec.ephemeralContainers[0].ports": true,
	}
	errs := defaultGates.ValidateTemplate(template, nil, field.NewPath("t"))
	for _, err := range errs {
		delete(want, err.Field[len("t."):])
	}
	if len(want) > 0 || len(errs) != 3 {
		t.Errorf("missing %v in %v", want, errs)
	}
}

// TestAttributesClassUpdate changes the class of attributes of a claim whose volume has one.
func TestAttributesClassUpdate(t *testing.T) {
	const text = "update to %s is forbidden when status.currentVolumeAttributesClassName is not nil"
	gold, silver, none := "gold", "silver", ""
	for _, c := range []struct {
		is, was *string
		want    string
	}{
		{nil, nil, ""}, {&gold, nil, ""}, {&silver, &gold, ""}, {&gold, &gold, ""}, {&none, &none, ""},
		{nil, &gold, "nil"}, {&none, &gold, "empty string"}, {&none, nil, "empty string"},
	} {
		want := ""
		if c.want != "" {
			want = "x: Forbidden: " + fmt.Sprintf(text, c.want)
		}
		got := ""
		if errs := validateAttributesClassUpdate(c.is, c.was, field.NewPath("x")); len(errs) > 0 {
			got = errs[0].Error()
		}
		if got != want {
			t.Errorf("%v after %v: %q, want %q", c.is, c.was, got, want)
		}
	}
}
