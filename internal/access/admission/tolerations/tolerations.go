// Package tolerations compares and merges the tolerations of pods, for the plug-ins that add or restrict them.
package tolerations

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Merge returns the tolerations of both lists, except those that another one covers. If several are equal, the
// first one is kept. It does not change the lists.
func Merge(first, second []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(first, second)
	var out []corev1.Toleration
	for i := range all {
		t := &all[i]
		coversIt := func(other corev1.Toleration) bool { return covers(&other, t) }
		larger := func(other corev1.Toleration) bool {
			return !equality.Semantic.DeepEqual(&other, t) && covers(&other, t)
		}
		if !slices.ContainsFunc(out, coversIt) && !slices.ContainsFunc(all[i+1:], larger) {
			out = append(out, *t)
		}
	}
	return out
}

// Allowed reports whether each toleration is covered by one of the allowed list. An empty list allows all.
func Allowed(list, allowed []corev1.Toleration) bool {
	return len(allowed) == 0 || !slices.ContainsFunc(list, func(t corev1.Toleration) bool {
		return !slices.ContainsFunc(allowed, func(a corev1.Toleration) bool { return covers(&a, &t) })
	})
}

// covers reports whether a tolerates all taints that b tolerates, for at least as long.
func covers(a, b *corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	allKeys := a.Key == "" && a.Operator == corev1.TolerationOpExists
	if a.Key != b.Key && !allKeys || a.Effect != "" && a.Effect != b.Effect {
		return false
	}
	if a.Effect == corev1.TaintEffectNoExecute && a.TolerationSeconds != nil &&
		(b.TolerationSeconds == nil || *b.TolerationSeconds > *a.TolerationSeconds) {
		return false
	}
	switch a.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		// As in kube-apiserver, an empty operator of b does not mean Equal.
		return b.Operator == corev1.TolerationOpEqual && a.Value == b.Value
	}
	return false
}
