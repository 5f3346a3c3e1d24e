// Package podresize refuses to resize a pod beyond what its node can give (PodResizeValidator): the total of its
// requests must fit into the allocatable resources of an empty node, which must run Linux.
package podresize

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

var (
	pods  = corev1.Resource("pods")
	nodes = corev1.Resource("nodes")
)

// The types of the causes in a refusal.
const (
	causeCapacity metav1.CauseType = "NodeCapacity"
	causePlatform metav1.CauseType = "UnsupportedPlatform"
)

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	return admission.Plugin{Name: "PodResizeValidator", Validate: (&plugin{in}).validate}
}

type plugin struct{ objects admission.Objects }

// validate ignores pods without a node, and updates that do not change the spec.
func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if a.Subresource != "resize" || a.Operation != admission.Update || a.Resource != pods {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	if pod.Spec.NodeName == "" || pod.Generation == a.Old.GetGeneration() {
		return nil
	}
	obj, err := p.objects.Lookup(ctx, nodes, "", pod.Spec.NodeName)
	if err != nil {
		return a.Forbiddenf("failed to get node %q: %w", pod.Spec.NodeName, err)
	}
	if obj == nil {
		return a.Forbiddenf("node %q not found", pod.Spec.NodeName)
	}
	node := obj.(*corev1.Node)
	if os, ok := node.Labels[corev1.LabelOSStable]; ok && os != string(corev1.Linux) {
		return refuse(a, causePlatform,
			fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, os))
	}
	if missing := shortage(core.PodRequests(&pod.Spec), node.Status.Allocatable); len(missing) > 0 {
		return refuse(a, causeCapacity,
			errors.New("node didn't have enough allocatable resources: "+strings.Join(missing, "; ")))
	}
	return nil
}

// shortage describes the resources for which the requests exceed the capacity of the node.
func shortage(requests, allocatable corev1.ResourceList) (missing []string) {
	cpu, memory := requests[corev1.ResourceCPU], requests[corev1.ResourceMemory]
	if has := allocatable.Cpu(); cpu.Cmp(*has) > 0 {
		missing = append(missing,
			fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), has.MilliValue()))
	}
	if has := allocatable.Memory(); memory.Cmp(*has) > 0 {
		missing = append(missing, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), has.Value()))
	}
	return missing
}

func refuse(a *admission.Attributes, cause metav1.CauseType, err error) error {
	status := a.Forbidden(err)
	status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	return status
}
