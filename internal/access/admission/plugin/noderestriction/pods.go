package noderestriction

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/node"
)

// checkPod checks writes of pods and of their subresources.
func (p *plugin) checkPod(ctx context.Context, w *write) error {
	switch w.Subresource {
	case "status":
		return checkPodStatus(w)
	case "eviction":
		return p.checkEviction(ctx, w)
	case "":
	default:
		return w.Forbiddenf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", w.Subresource)
	}
	switch w.Operation {
	case admission.Create:
		return p.checkMirror(ctx, w, w.Object.(*corev1.Pod))
	case admission.Delete:
		if w.Old.(*corev1.Pod).Spec.NodeName != w.node {
			return w.Forbiddenf("node %q can only delete pods with spec.nodeName set to itself", w.node)
		}
		return nil
	}
	return w.Forbiddenf("unexpected operation %q, node %q can only create and delete mirror pods", w.Operation, w.node)
}

// checkMirror checks a new pod. It must be a mirror pod, which shows a pod that the kubelet runs from a file.
func (p *plugin) checkMirror(ctx context.Context, w *write, pod *corev1.Pod) error {
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; !ok {
		return w.Forbiddenf("pod does not have %q annotation, node %q can only create mirror pods",
			corev1.MirrorPodAnnotationKey, w.node)
	}
	if pod.Spec.NodeName != w.node {
		return w.Forbiddenf("node %q can only create pods with spec.nodeName set to itself", w.node)
	}
	if err := p.ownedBy(ctx, w, pod); err != nil {
		return err
	}
	what, err := reference(pod)
	if err != nil {
		return w.Forbiddenf("error checking mirror pod for API references: %w", err)
	}
	if what != "" {
		return w.Forbiddenf("node %q can not create pods that reference %s", w.node, what)
	}
	return nil
}

// reference returns the name of a resource that the pod refers to, such as secrets; "" if it refers to none. A
// kubelet may read the objects that its pods refer to. So a mirror pod, which a kubelet makes, must not refer to
// any.
func reference(pod *corev1.Pod) (string, error) {
	switch {
	case pod.Spec.ServiceAccountName != "":
		return "serviceaccounts", nil
	case node.RefersToSecrets(pod):
		return "secrets", nil
	case node.RefersToConfigMaps(pod):
		return "configmaps", nil
	case len(pod.Spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range pod.Spec.Volumes {
		if what, err := volumeReference(&pod.Spec.Volumes[i]); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

func volumeReference(v *corev1.Volume) (string, error) {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if what, err := projectedReference(v.Name, &v.Projected.Sources[i]); what != "" || err != nil {
				return what, err
			}
		}
		return "", nil
	}
	if v.VolumeSource == (corev1.VolumeSource{}) {
		return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
	}
	return "", nil
}

func projectedReference(volume string, s *corev1.VolumeProjection) (string, error) {
	switch {
	case s.ConfigMap != nil:
		return "configmaps (via projected volumes)", nil
	case s.Secret != nil:
		return "secrets (via projected volumes)", nil
	case s.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)", nil
	case s.ClusterTrustBundle != nil:
		return "clustertrustbundles", nil
	case s.PodCertificate != nil:
		return "podcertificates", nil
	case s.DownwardAPI != nil:
		return "", nil
	}
	return "", fmt.Errorf("unknown source for projected volume %q", volume)
}

// checkPodStatus lets a kubelet report about the pods on its node.
func checkPodStatus(w *write) error {
	if w.Operation != admission.Update {
		return w.Forbiddenf("unexpected operation %q", w.Operation)
	}
	pod, old := w.Object.(*corev1.Pod), w.Old.(*corev1.Pod)
	if old.Spec.NodeName != w.node {
		return w.Forbiddenf("node %q can only update pod status for pods with spec.nodeName set to itself", w.node)
	}
	if !labels.Equals(old.Labels, pod.Labels) {
		return w.Forbiddenf("node %q cannot update labels through pod status", w.node)
	}
	if !sameClaims(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) {
		return w.Forbiddenf("node %q cannot update resource claim statues", w.node)
	}
	had, has := old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus
	if (had == nil) != (has == nil) || had != nil && (had.ResourceClaimName != has.ResourceClaimName ||
		!equality.Semantic.DeepEqual(had.RequestMappings, has.RequestMappings)) {
		return w.Forbiddenf("node %q cannot update extended resource claim status", w.node)
	}
	if !equality.Semantic.DeepEqual(old.Status.NodeAllocatableResourceClaimStatuses,
		pod.Status.NodeAllocatableResourceClaimStatuses) {
		return w.Forbiddenf("node %q cannot update node allocatable resource claim statuses", w.node)
	}
	return nil
}

func sameClaims(a, b []corev1.PodResourceClaimStatus) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.PodResourceClaimStatus) bool {
		return a.Name == b.Name && ptr.Equal(a.ResourceClaimName, b.ResourceClaimName)
	})
}

// checkEviction lets a kubelet evict the pods on its node.
func (p *plugin) checkEviction(ctx context.Context, w *write) error {
	if w.Operation != admission.Create {
		return w.Forbiddenf("unexpected operation %s", w.Operation)
	}
	name := w.Name
	if name == "" {
		name = w.Object.GetName()
	}
	if name == "" {
		return w.Forbiddenf("could not determine pod from request data")
	}
	obj, err := p.lookup(ctx, w, pods, w.Namespace, name, "pod")
	if err != nil {
		return err
	}
	if obj.(*corev1.Pod).Spec.NodeName != w.node {
		return w.Forbiddenf("node %s can only evict pods with spec.nodeName set to itself", w.node)
	}
	return nil
}
