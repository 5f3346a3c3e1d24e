package core

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func texts(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// TestVolumeHealth validates the health of volumes, and accepts what was there before.
func TestVolumeHealth(t *testing.T) {
	pod := func(health ...corev1.PodVolumeHealth) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v"}}},
			Status: corev1.PodStatus{VolumeHealth: health}}
	}
	bad := pod(corev1.PodVolumeHealth{Name: "other", HealthConditions: []corev1.VolumeHealthCondition{{Status: "x"}}},
		corev1.PodVolumeHealth{HealthConditions: make([]corev1.VolumeHealthCondition, 17)})
	want := []string{
		`h[0].name: Not found: "other"`,
		`h[0].healthConditions[0].status: Unsupported value: "x": supported values: "DataLoss", "Degraded", "Inaccessible"`,
		"h[0].healthConditions[0].reason: Required value",
		"h[1].name: Required value",
		"h[1].healthConditions: Too many: 17: must have at most 16 items",
	}
	if got := texts(validateVolumeHealth(bad, &corev1.PodStatus{}, field.NewPath("h"))); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	old := pod(corev1.PodVolumeHealth{Name: "v", HealthConditions: []corev1.VolumeHealthCondition{{Status: "x", Reason: "R"}}})
	if got := validateVolumeHealth(old, &old.Status, field.NewPath("h")); len(got) > 0 {
		t.Errorf("got %v for what was there before", got)
	}
}

// TestAllocatableClaims validates which resources of the node the claims of a pod use.
func TestAllocatableClaims(t *testing.T) {
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("claim")}}},
		Status: corev1.PodStatus{NodeAllocatableResourceClaimStatuses: []corev1.NodeAllocatableResourceClaimStatus{
			{ResourceClaimName: "claim", Containers: []string{"a", "a"},
				Mapping:  []corev1.NodeAllocatableMappedResources{{Name: "cpu"}, {Name: "x", Quantity: new(resource.MustParse("-1"))}},
				Overhead: []corev1.NodeAllocatableOverheadResources{{Name: "memory"}}},
			{ResourceClaimName: "other"},
		}},
	}
	want := []string{
		`a[0].mapping[1].name: Invalid value: "x": must be a node allocatable resource name`,
		`a[0].mapping[1].quantity: Invalid value: "-1": must be non-negative`,
		`a[0].overhead[0]: Invalid value: "": at least one of perPod or perContainer must be set`,
		`a[1].resourceClaimName: Invalid value: "other": no mapping found in pod reference`,
		`a[0].containers[1]: Duplicate value: "a"`,
		"a[0].mapping[0].quantity: Required value",
	}
	if got := texts(validateAllocatableClaims(pod, &corev1.PodStatus{}, field.NewPath("a"))); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPreemptionPolicy validates who has disabled preemption on a node.
func TestPreemptionPolicy(t *testing.T) {
	node := func(owners ...string) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{PodPreemptionPolicy: &corev1.NodePodPreemptionPolicy{
			DisableResizePreemption: owners}}}
	}
	if got := validatePreemptionPolicy(node("a", "a", "_"), &corev1.Node{}); len(got) != 2 {
		t.Errorf("got %v, want a duplicate and a wrong key", got)
	}
	if got := validatePreemptionPolicy(node("_", "a"), node("_")); len(got) > 0 {
		t.Errorf("got %v for what was there before", got)
	}
	if got := validatePreemptionPolicy(node(make([]string, 21)...), &corev1.Node{}); len(got) != 1 {
		t.Errorf("got %v, want too many", got)
	}
}

// TestVolumesResize allows a resize to change the size of a volume in memory, and nothing else.
func TestVolumesResize(t *testing.T) {
	volume := func(name string, medium corev1.StorageMedium, size string) corev1.Volume {
		d := &corev1.EmptyDirVolumeSource{Medium: medium}
		if size != "" {
			d.SizeLimit = new(resource.MustParse(size))
		}
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: d}}
	}
	was := []corev1.Volume{volume("m", corev1.StorageMediumMemory, "1Gi"), volume("d", "", "1Gi"), volume("n", "", "")}
	for _, c := range []struct {
		is   []corev1.Volume
		want []string
	}{
		{[]corev1.Volume{volume("m", corev1.StorageMediumMemory, "2Gi"), was[1], was[2]}, nil},
		{was[:2], []string{"v: Forbidden: volumes may not be added or removed on resize"}},
		{[]corev1.Volume{volume("x", corev1.StorageMediumMemory, "1Gi"), volume("d", "", "2Gi"), volume("n", "", "1Gi")}, []string{
			"v[0].name: Forbidden: volumes may not be renamed or reordered on resize",
			"v[1].emptyDir.sizeLimit: Forbidden: sizeLimit is only mutable for memory-backed emptyDir volumes",
			"v[2].emptyDir.sizeLimit: Forbidden: adding or removing sizeLimit on an existing volume is not allowed"}},
		{[]corev1.Volume{was[0], was[1], {Name: "n"}}, []string{"v[2]: Forbidden: " + onlySizesInMemory}},
	} {
		if got := texts(validateVolumesResize(c.is, was, field.NewPath("v"))); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
