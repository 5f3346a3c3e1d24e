package quota

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Add adds more to total.
func Add(total, more corev1.ResourceList) {
	for name, q := range more {
		sum := total[name].DeepCopy()
		// A sum has the format of its first quantity, so that 1Gi and 1Gi are shown as 2Gi.
		if _, ok := total[name]; !ok {
			sum.Format = q.Format
		}
		sum.Add(q)
		total[name] = sum
	}
}

// raise raises the quantities of to to those of list.
func raise(to, list corev1.ResourceList) {
	for name, q := range list {
		if have, ok := to[name]; !ok || q.Cmp(have) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}

// Increase returns by how much the quantities of list are larger than those of old. It leaves out names whose
// quantity is not larger. A name that old does not have counts as 0.
func Increase(list, old corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		q = q.DeepCopy()
		q.Sub(old[name])
		if q.Sign() > 0 {
			out[name] = q
		}
	}
	return out
}

// Only returns the quantities of list with these names.
func Only(list corev1.ResourceList, names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range names {
		if q, ok := list[name]; ok {
			out[name] = q
		}
	}
	return out
}

// Names returns the names of a list, sorted.
func Names(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

// Equal reports whether two lists have the same names with the same quantities.
// The notation does not matter: 1 and 1000m are equal.
func Equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if other, ok := b[name]; !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// Format returns a list as kube-apiserver's messages show it: name=quantity, separated by commas.
func Format(list corev1.ResourceList) string {
	var parts []string
	for _, name := range Names(list) {
		q := list[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// FormatNames returns names separated by commas.
func FormatNames(names []corev1.ResourceName) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = string(name)
	}
	return strings.Join(parts, ",")
}
