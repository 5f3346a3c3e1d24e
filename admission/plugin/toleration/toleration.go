// Package toleration adds tolerations to pods, so that a pod stays for five minutes on a node that is not ready or
// unreachable, unless its own tolerations say otherwise (DefaultTolerationSeconds).
package toleration

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/admission"
)

var pods = corev1.Resource("pods")

// seconds is how long a pod stays.
const seconds = 300

// tolerated are the taints that the node lifecycle controller adds to such a node.
var tolerated = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "DefaultTolerationSeconds", Mutate: mutate}
}

func mutate(_ context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create, admission.Update) {
		return nil
	}
	spec := &a.Object.(*corev1.Pod).Spec
	sent := spec.Tolerations
	for _, key := range tolerated {
		if !hasEvictionToleration(sent, key) {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To[int64](seconds),
			})
		}
	}
	return nil
}

// hasEvictionToleration reports whether one of the tolerations applies to the effect NoExecute of the taint.
func hasEvictionToleration(tolerations []corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
