// Package toleration adds tolerations to pods, so that a pod stays for five minutes on a node that is not ready or
// unreachable, unless its own tolerations are different (DefaultTolerationSeconds).
package toleration

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var pods = corev1.Resource("pods")

// DefaultSeconds is the default time that a pod stays.
const DefaultSeconds = 300

// Plugin returns the plug-in. A pod stays notReady seconds on a node that is not ready, and unreachable seconds on one
// that is unreachable.
func Plugin(notReady, unreachable int64) admission.Plugin {
	p := plugin{{corev1.TaintNodeNotReady, notReady}, {corev1.TaintNodeUnreachable, unreachable}}
	return admission.Plugin{Name: "DefaultTolerationSeconds", Mutate: p.mutate}
}

// plugin has the taints that the node lifecycle controller adds to such a node, and how long they are tolerated.
type plugin [2]struct {
	taint   string
	seconds int64
}

func (p plugin) mutate(_ context.Context, a *admission.Attributes) error {
	if !a.Is(pods, admission.Create, admission.Update) {
		return nil
	}
	spec := &a.Object.(*corev1.Pod).Spec
	sent := spec.Tolerations
	for _, t := range p {
		if !hasEvictionToleration(sent, t.taint) {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
				Key: t.taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To(t.seconds),
			})
		}
	}
	return nil
}

// hasEvictionToleration reports whether one of the tolerations applies to the effect NoExecute of the taint.
func hasEvictionToleration(tolerations []corev1.Toleration, key string) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}
