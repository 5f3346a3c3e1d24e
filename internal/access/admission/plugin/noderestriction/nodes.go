package noderestriction

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

// checkNode checks writes of Nodes. A kubelet must not change the placement of pods: it may not set taints, and only
// known labels of kubelets.
func checkNode(w *write) error {
	if name := objectName(w.Attributes); name != w.node {
		return w.Forbiddenf("node %q is not allowed to modify node %q", w.node, name)
	}
	switch w.Operation {
	case admission.Create:
		n := w.Object.(*corev1.Node)
		if n.Spec.ConfigSource != nil { //nolint:staticcheck // deprecated, still in the API
			return w.Forbiddenf("node %q is not allowed to create pods with a non-nil configSource", w.node)
		}
		if labels := forbiddenLabels(n.Labels, nil); len(labels) > 0 {
			return w.Forbiddenf("node %q is not allowed to set the following labels: %s", w.node, strings.Join(labels, ", "))
		}
	case admission.Update:
		return checkNodeUpdate(w, w.Object.(*corev1.Node), w.Old.(*corev1.Node))
	}
	return nil
}

func checkNodeUpdate(w *write, n, old *corev1.Node) error {
	if n.Spec.ConfigSource != nil && //nolint:staticcheck // deprecated, still in the API
		!equality.Semantic.DeepEqual(n.Spec.ConfigSource, old.Spec.ConfigSource) { //nolint:staticcheck // the same
		return w.Forbiddenf("node %q is not allowed to update configSource to a new non-nil configSource", w.node)
	}
	if !equality.Semantic.DeepEqual(n.Spec.Taints, old.Spec.Taints) {
		return w.Forbiddenf("node %q is not allowed to modify taints", w.node)
	}
	if !equality.Semantic.DeepEqual(n.OwnerReferences, old.OwnerReferences) {
		return w.Forbiddenf("node %q is not allowed to modify ownerReferences", w.node)
	}
	if labels := forbiddenLabels(n.Labels, old.Labels); len(labels) > 0 {
		return w.Forbiddenf("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

// forbiddenLabels returns the sorted keys of the labels that differ and that a kubelet must not set.
func forbiddenLabels(labels, old map[string]string) (forbidden []string) {
	add := func(key string) {
		if !slices.Contains(forbidden, key) && !mayLabel(key) {
			forbidden = append(forbidden, key)
		}
	}
	for key, value := range labels {
		if had, ok := old[key]; !ok || had != value {
			add(key)
		}
	}
	for key := range old {
		if _, ok := labels[key]; !ok {
			add(key)
		}
	}
	slices.Sort(forbidden)
	return forbidden
}

// mayLabel reports whether a kubelet may set the label on its Node. Labels with prefixes of Kubernetes are
// refused, among them node-restriction.kubernetes.io, except for some known labels and two prefixes for kubelets.
func mayLabel(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	if !ok {
		return true
	}
	within := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	switch {
	case !within("kubernetes.io") && !within("k8s.io"):
		return true
	case within(corev1.LabelNamespaceSuffixKubelet), within(corev1.LabelNamespaceSuffixNode):
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, //nolint:staticcheck // kubelets set them
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return true
	}
	return false
}
