// Package antiaffinity refuses pods that keep others away from more than a node, such as from a whole zone
// (LimitPodHardAntiAffinityTopology).
package antiaffinity

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var pods = corev1.Resource("pods")

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "LimitPodHardAntiAffinityTopology", Validate: validate}
}

func validate(_ context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create, admission.Update) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return kerrors.NewForbidden(pods, pod.Name, fmt.Errorf(
				"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed",
				term.TopologyKey, corev1.LabelHostname,
			))
		}
	}
	return nil
}
