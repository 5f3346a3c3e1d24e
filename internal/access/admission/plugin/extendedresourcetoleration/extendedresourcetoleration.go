// Package extendedresourcetoleration lets pods that request extended resources, such as GPUs, run on the nodes that
// have these resources and a taint of that name (ExtendedResourceToleration).
package extendedresourcetoleration

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

var pods = corev1.Resource("pods")

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "ExtendedResourceToleration", Mutate: mutate}
}

func mutate(_ context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create, admission.Update) {
		return nil
	}
	spec := &a.Object.(*corev1.Pod).Spec
	var names []string
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if core.IsExtendedResource(string(name)) {
					names = append(names, string(name))
				}
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		tolerate(spec, corev1.Toleration{
			Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return nil
}

// tolerate adds a toleration. It replaces a toleration that differs only in its tolerationSeconds.
func tolerate(spec *corev1.PodSpec, t corev1.Toleration) {
	found := false
	out := make([]corev1.Toleration, 0, len(spec.Tolerations)+1)
	for _, own := range spec.Tolerations {
		if t.MatchToleration(&own) {
			own, found = t, true
		}
		out = append(out, own)
	}
	if !found {
		out = append(out, t)
	}
	spec.Tolerations = out
}
