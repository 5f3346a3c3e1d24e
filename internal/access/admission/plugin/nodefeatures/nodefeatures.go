// Package nodefeatures refuses changes of a running pod that its node cannot carry out
// (NodeDeclaredFeatureValidator). A kubelet declares in status.declaredFeatures of its node which optional features it
// has. Kubernetes 1.36 has two features that a change of a pod can need, and both are about resizing.
package nodefeatures

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var (
	pods  = corev1.Resource("pods")
	nodes = corev1.Resource("nodes")
)

// feature is something that a kubelet must be able to do for some changes of pods.
type feature struct {
	name   string
	needed func(spec, old *corev1.PodSpec) bool
}

// features returns the features in the order of their names.
func features() []feature {
	return []feature{
		{"InPlacePodLevelResourcesVerticalScaling", resizesPod},
		{"InPlacePodVerticalScalingInitContainers", resizesInitContainer},
	}
}

// resizesPod reports whether the resources of the pod as a whole change.
func resizesPod(spec, old *corev1.PodSpec) bool {
	return !equality.Semantic.DeepEqual(spec.Resources, old.Resources)
}

// resizesInitContainer reports whether the resources of an init container change. Sidecars do not count.
func resizesInitContainer(spec, old *corev1.PodSpec) bool {
	for i := range min(len(spec.InitContainers), len(old.InitContainers)) {
		had := &old.InitContainers[i]
		sidecar := had.RestartPolicy != nil && *had.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if !sidecar && !equality.Semantic.DeepEqual(spec.InitContainers[i].Resources, had.Resources) {
			return true
		}
	}
	return false
}

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	p := &plugin{objects: in, features: features()}
	return admission.Plugin{Name: "NodeDeclaredFeatureValidator", Validate: p.validate}
}

type plugin struct {
	objects  admission.Objects
	features []feature
}

// validate ignores pods without a node, and updates that do not change the spec.
func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if a.Operation != admission.Update || a.Resource != pods || a.Subresource != "" && a.Subresource != "resize" {
		return nil
	}
	pod, old := a.Object.(*corev1.Pod), a.Old.(*corev1.Pod)
	if pod.Spec.NodeName == "" || pod.Generation == old.Generation {
		return nil
	}
	var needed []string
	for _, f := range p.features {
		if f.needed(&pod.Spec, &old.Spec) {
			needed = append(needed, f.name)
		}
	}
	if len(needed) == 0 {
		return nil
	}
	node, err := p.objects.Lookup(ctx, nodes, "", pod.Spec.NodeName)
	if err != nil {
		return a.Forbiddenf("failed to get node %q: %w", pod.Spec.NodeName, err)
	}
	if node == nil {
		return a.Forbiddenf("node %q not found", pod.Spec.NodeName)
	}
	declared := node.(*corev1.Node).Status.DeclaredFeatures
	missing := slices.DeleteFunc(needed, func(name string) bool { return slices.Contains(declared, name) })
	if len(missing) > 0 {
		return a.Forbiddenf("pod update requires features %s which are not available on node %q",
			strings.Join(missing, ", "), pod.Spec.NodeName)
	}
	return nil
}
