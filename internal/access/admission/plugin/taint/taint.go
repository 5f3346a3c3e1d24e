// Package taint adds a taint to new nodes, so that no pods are scheduled to a node before it is ready
// (TaintNodesByCondition).
package taint

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var nodes = corev1.Resource("nodes")

// notReady is removed by the node lifecycle controller when the node is ready.
var notReady = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "TaintNodesByCondition", Mutate: mutate}
}

func mutate(_ context.Context, a *admission.Attributes) error {
	if !a.Is(nodes, admission.Create) {
		return nil
	}
	node := a.Object.(*corev1.Node)
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].MatchTaint(&notReady) {
			return nil
		}
	}
	node.Spec.Taints = append(node.Spec.Taints, notReady)
	return nil
}
