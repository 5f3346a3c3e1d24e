package podresize

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
}

func node(name, os string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Status.Allocatable = name, resources("2", "1Gi")
	if os != "" {
		n.Labels = map[string]string{corev1.LabelOSStable: os}
	}
	return n
}

func pod(node, cpu, memory string, generation int64) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.Generation, p.Spec.NodeName = "n", "p", generation, node
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: resources(cpu, memory)}}}
	return p
}

func TestResizesThatTheNodeCannotGiveAreRefused(t *testing.T) {
	const prefix = `pods "p" is forbidden: `
	in := admissiontest.Objects{
		nodes: []registry.Object{node("small", "linux"), node("bare", ""), node("win", "windows")},
	}
	large := pod("small", "1", "1Gi", 2)
	large.Spec.Overhead = resources("1001m", "1")
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		subresource string
		want        string
		cause       metav1.CauseType
	}{
		"fits":     {pod("small", "2", "1Gi", 2), "resize", "", ""},
		"no label": {pod("bare", "2", "1Gi", 2), "resize", "", ""},
		"too much CPU": {
			pod("small", "2001m", "1Gi", 2), "resize",
			"node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000", causeCapacity,
		},
		"too much of all": {
			pod("small", "3", "2Gi", 2), "resize",
			"node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, requested: " +
				"2147483648, allocatable: 1073741824",
			causeCapacity,
		},
		"overhead counts": {
			large, "resize",
			"node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000; memory, requested: " +
				"1073741825, allocatable: 1073741824",
			causeCapacity,
		},
		"Windows": {
			pod("win", "1", "1Gi", 2), "resize", `pod resize is only supported on linux nodes, node "win" is "windows"`,
			causePlatform,
		},
		"node is missing":    {pod("none", "1", "1Gi", 2), "resize", `node "none" not found`, ""},
		"no node":            {pod("", "3", "1Gi", 2), "resize", "", ""},
		"nothing changed":    {pod("small", "3", "1Gi", 1), "resize", "", ""},
		"not a resize":       {pod("small", "3", "1Gi", 2), "", "", ""},
		"a change of status": {pod("small", "3", "1Gi", 2), "status", "", ""},
	} {
		a := admissiontest.Change(pods, c.pod, pod(c.pod.Spec.NodeName, "1", "1Gi", 1))
		a.Subresource = c.subresource
		err := Plugin(in).Validate(t.Context(), a)
		switch {
		case c.want == "" && err == nil:
		case err == nil || err.Error() != prefix+c.want:
			t.Errorf("%s: %v, want %s", name, err, c.want)
		case kerrors.HasStatusCause(err, c.cause) == (c.cause == ""):
			t.Errorf("%s: causes are %v", name, err.(*kerrors.StatusError).ErrStatus.Details.Causes)
		}
	}
}
