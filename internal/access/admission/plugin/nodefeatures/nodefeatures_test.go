package nodefeatures

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	podLevel = "InPlacePodLevelResourcesVerticalScaling"
	initial  = "InPlacePodVerticalScalingInitContainers"
)

func node(name string, features ...string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Status.DeclaredFeatures = name, features
	return n
}

func cpu(quantity string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}}
}

// pod returns a pod with an init container, a sidecar and a container. change may be nil.
func pod(node string, generation int64, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.Generation = "n", "p", generation
	p.Spec = corev1.PodSpec{
		NodeName: node,
		InitContainers: []corev1.Container{
			{Name: "i", Resources: cpu("1")},
			{Name: "s", Resources: cpu("1"), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		},
		Containers: []corev1.Container{{Name: "c", Resources: cpu("1")}},
	}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func TestChangesNeedFeaturesOfTheNode(t *testing.T) {
	const prefix, suffix = `pods "p" is forbidden: pod update requires features `, " which are not available on node "
	in := admissiontest.Objects{nodes: []registry.Object{
		node("old"), node("half", initial, "Other"), node("new", initial, podLevel),
	}}
	container := func(s *corev1.PodSpec) { s.Containers[0].Resources = cpu("2") }
	sidecar := func(s *corev1.PodSpec) { s.InitContainers[1].Resources = cpu("2") }
	first := func(s *corev1.PodSpec) { s.InitContainers[0].Resources = cpu("2") }
	whole := func(s *corev1.PodSpec) { s.Resources = ptr.To(cpu("2")) }
	both := func(s *corev1.PodSpec) { first(s); whole(s) }
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		subresource string
		want        string
	}{
		"container":       {pod("old", 2, container), "resize", ""},
		"sidecar":         {pod("old", 2, sidecar), "resize", ""},
		"init container":  {pod("old", 2, first), "resize", prefix + initial + suffix + `"old"`},
		"whole pod":       {pod("old", 2, whole), "resize", prefix + podLevel + suffix + `"old"`},
		"both":            {pod("old", 2, both), "resize", prefix + podLevel + ", " + initial + suffix + `"old"`},
		"both, half":      {pod("half", 2, both), "resize", prefix + podLevel + suffix + `"half"`},
		"both, new":       {pod("new", 2, both), "resize", ""},
		"pod itself":      {pod("old", 2, first), "", prefix + initial + suffix + `"old"`},
		"status":          {pod("old", 2, first), "status", ""},
		"same generation": {pod("old", 1, first), "resize", ""},
		"no node":         {pod("", 2, first), "resize", ""},
		"missing node":    {pod("none", 2, first), "resize", `pods "p" is forbidden: node "none" not found`},
	} {
		a := admissiontest.Change(pods, c.pod, pod(c.pod.Spec.NodeName, 1, nil))
		a.Subresource = c.subresource
		err := Plugin(in).Validate(t.Context(), a)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
