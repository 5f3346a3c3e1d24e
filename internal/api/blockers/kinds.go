package blockers

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/api/discovery"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	nodes  = corev1.SchemeGroupVersion.WithResource("nodes")
	pods   = corev1.SchemeGroupVersion.WithResource("pods")
	claims = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	leases = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// addPod adds the time until which the containers of a pod may run, and the state of the node whose kubelet has to
// end them.
func (s *search) addPod(ctx context.Context, pod *corev1.Pod) {
	node := pod.Spec.NodeName
	if node == "" {
		return // no kubelet has to confirm the deletion
	}
	end := pod.DeletionTimestamp.Time
	b := Blocker{Type: GracePeriod, Name: end.UTC().Format(time.RFC3339), Since: s.deletionBegan(), Owner: "the kubelet of the node " + node}
	if s.Now().Before(end) {
		b.Message = fmt.Sprintf("The kubelet of the node %s has until %s to end the containers.", node, b.Name)
	} else {
		b.Message = fmt.Sprintf("The grace period has ended, and the kubelet of the node %s has not confirmed that the containers have.", node)
	}
	if s.mayList(ctx, nodes, "") {
		b.Message += " " + s.nodeState(ctx, node)
		b.Count, b.Objects = 1, []Object{reference(nodes, "", node)}
	}
	s.add(b)
}

// nodeState returns sentences about the readiness of a node, and about the Lease that its kubelet renews.
func (s *search) nodeState(ctx context.Context, name string) string {
	obj, err := s.Client.Get(ctx, client.Ref{Resource: nodes, Name: name})
	if kerrors.IsNotFound(err) {
		return "This node does not exist."
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return "The state of the node cannot be read."
	}
	text := "The node has no condition Ready."
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			text = fmt.Sprintf("The condition Ready of the node is %s since %s.", c.Status, c.LastTransitionTime.UTC().Format(time.RFC3339))
		}
	}
	if !s.mayList(ctx, leases, corev1.NamespaceNodeLease) {
		return text
	}
	obj, err = s.Client.Get(ctx, client.Ref{Resource: leases, Namespace: corev1.NamespaceNodeLease, Name: name})
	switch lease, ok := obj.(*coordinationv1.Lease); {
	case kerrors.IsNotFound(err):
		text += " It has no Lease."
	case ok && lease.Spec.RenewTime != nil:
		text += fmt.Sprintf(" Its Lease was renewed at %s.", lease.Spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return text
}

// addUsers adds the pods on nodes that use a claim. The controller that protects claims does not count pods without a node.
func (s *search) addUsers(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	f := found{Resource: discovery.Resource{GroupVersionResource: pods, Kind: "Pod", Namespaced: true}}
	_, err := s.Client.List(ctx, client.ListRequest{Resource: pods, Namespace: claim.Namespace}, func(obj registry.Object) bool {
		pod := obj.(*corev1.Pod)
		if !s.budget(pods.GroupResource(), 0) || ctx.Err() != nil {
			return false
		}
		if pod.Spec.NodeName == "" || !uses(pod, claim) {
			return true
		}
		f.count++
		if len(f.others) < maxNamed {
			f.others = append(f.others, client.Metadata{Namespace: pod.Namespace, Name: pod.Name, Lifecycle: registry.Lifecycle{
				UID: pod.UID, Deleting: pod.DeletionTimestamp != nil, Finalizers: pod.Finalizers}})
		}
		return true
	})
	s.unreadable(ctx, err, pods, claim.Namespace)
	if f.count > 0 {
		s.add(s.item(ctx, Dependent, f, "The claim is used on nodes by %s"))
	}
}

// uses reports whether a volume of a pod uses a claim: it names the claim, or the claim was created for it (an
// ephemeral volume).
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name:
			return true
		case v.Ephemeral != nil && pod.Name+"-"+v.Name == claim.Name && metav1.IsControlledBy(claim, pod):
			ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			return !ended
		}
	}
	return false
}

// addClaim adds the claim that a volume is bound to.
func (s *search) addClaim(ctx context.Context, volume *corev1.PersistentVolume) {
	ref := volume.Spec.ClaimRef
	if ref == nil || volume.Status.Phase != corev1.VolumeBound {
		return
	}
	f := found{Resource: discovery.Resource{GroupVersionResource: claims, Kind: ref.Kind, Namespaced: true}, count: 1}
	m, err := s.Client.GetMetadata(ctx, client.Ref{Resource: claims, Namespace: ref.Namespace, Name: ref.Name})
	if err != nil {
		m = client.Metadata{Namespace: ref.Namespace, Name: ref.Name, Lifecycle: registry.Lifecycle{UID: ref.UID}}
	}
	f.others = append(f.others, m)
	s.add(s.item(ctx, Dependent, f, "The volume is bound to %s"))
}

// addInstances adds the custom resources of a definition that is being deleted.
func (s *search) addInstances(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	if !slices.Contains(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return
	}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}
		namespaced := crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		r := discovery.Resource{GroupVersionResource: gvr, Kind: crd.Spec.Names.Kind, Namespaced: namespaced}
		if f := s.scan(ctx, r, "", func(*client.Metadata) bool { return true }); f.count > 0 {
			s.add(s.item(ctx, Dependent, f, fmt.Sprintf("Left: %%s, %d of them with finalizers", f.withFinalizers)))
			s.webhooksOfFirst(ctx, f)
		}
		return // the other versions have the same objects
	}
}
