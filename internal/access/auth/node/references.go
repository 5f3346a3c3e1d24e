package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// podReferences returns the objects that a node needs to run the pod. A mirror pod has none:
// the kubelet creates it itself, and must not get access to more objects by that.
func podReferences(p *corev1.Pod) []object {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return nil
	}
	return allReferences(p)
}

// RefersToSecrets reports whether a pod refers to a Secret.
func RefersToSecrets(p *corev1.Pod) bool { return refersTo(p, secret) }

// RefersToConfigMaps reports whether a pod refers to a ConfigMap.
func RefersToConfigMaps(p *corev1.Pod) bool { return refersTo(p, configMap) }

func refersTo(p *corev1.Pod, k kind) bool {
	return slices.ContainsFunc(allReferences(p), func(o object) bool { return o.kind == k })
}

func allReferences(p *corev1.Pod) []object {
	r := references{namespace: p.Namespace}
	r.add(serviceAccount, p.Spec.ServiceAccountName)
	for _, s := range p.Spec.ImagePullSecrets {
		r.add(secret, s.Name)
	}
	for i := range p.Spec.InitContainers {
		r.container(p.Spec.InitContainers[i].Env, p.Spec.InitContainers[i].EnvFrom)
	}
	for i := range p.Spec.Containers {
		r.container(p.Spec.Containers[i].Env, p.Spec.Containers[i].EnvFrom)
	}
	for i := range p.Spec.EphemeralContainers {
		r.container(p.Spec.EphemeralContainers[i].Env, p.Spec.EphemeralContainers[i].EnvFrom)
	}
	for i := range p.Spec.Volumes {
		r.volume(p.Name, &p.Spec.Volumes[i])
	}
	for i := range p.Spec.ResourceClaims {
		r.resourceClaim(&p.Spec.ResourceClaims[i], p.Status.ResourceClaimStatuses)
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		r.add(resourceClaim, extended.ResourceClaimName)
	}
	return r.list
}

// references collects the objects of one namespace that a pod refers to.
type references struct {
	namespace string
	list      []object
}

func (r *references) add(k kind, name string) {
	if name != "" {
		r.list = append(r.list, object{k, r.namespace, name})
	}
}

func (r *references) container(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, f := range from {
		if f.SecretRef != nil {
			r.add(secret, f.SecretRef.Name)
		}
		if f.ConfigMapRef != nil {
			r.add(configMap, f.ConfigMapRef.Name)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			r.add(secret, ref.Name)
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.add(configMap, ref.Name)
		}
	}
}

func (r *references) volume(podName string, v *corev1.Volume) {
	local := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			r.add(secret, ref.Name)
		}
	}
	switch {
	case v.PersistentVolumeClaim != nil:
		r.add(claim, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		r.add(claim, podName+"-"+v.Name)
	case v.Secret != nil:
		r.add(secret, v.Secret.SecretName)
	case v.ConfigMap != nil:
		r.add(configMap, v.ConfigMap.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				r.add(secret, s.Secret.Name)
			}
			if s.ConfigMap != nil {
				r.add(configMap, s.ConfigMap.Name)
			}
		}
	case v.AzureFile != nil:
		r.add(secret, v.AzureFile.SecretName)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	}
}

// resourceClaim adds a ResourceClaim that the pod names, or the one that was created from a
// template, once the pod's status has its name.
func (r *references) resourceClaim(c *corev1.PodResourceClaim, statuses []corev1.PodResourceClaimStatus) {
	if c.ResourceClaimName != nil {
		r.add(resourceClaim, *c.ResourceClaimName)
		return
	}
	for _, s := range statuses {
		if s.Name == c.Name && s.ResourceClaimName != nil {
			r.add(resourceClaim, *s.ResourceClaimName)
		}
	}
}

// volumeSecrets returns the secrets that a node needs to mount a volume, but not those that
// only a controller needs. Old volumes leave out the namespace; it is the namespace of the
// claim.
func volumeSecrets(v *corev1.PersistentVolume) []object {
	var list []object
	add := func(namespace, name string) {
		if name != "" {
			list = append(list, object{secret, namespace, name})
		}
	}
	orClaimNamespace := func(namespace string) string {
		if namespace == "" && v.Spec.ClaimRef != nil {
			return v.Spec.ClaimRef.Namespace
		}
		return namespace
	}
	addOrClaimNamespace := func(ref *corev1.SecretReference) {
		if ref != nil {
			add(orClaimNamespace(ref.Namespace), ref.Name)
		}
	}
	addReference := func(ref *corev1.SecretReference) {
		if ref != nil {
			add(ref.Namespace, ref.Name)
		}
	}
	switch s := &v.Spec.PersistentVolumeSource; {
	case s.AzureFile != nil:
		add(orClaimNamespace(ptr.Deref(s.AzureFile.SecretNamespace, "")), s.AzureFile.SecretName)
	case s.CephFS != nil:
		addOrClaimNamespace(s.CephFS.SecretRef)
	case s.Cinder != nil:
		addReference(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		addOrClaimNamespace(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		addOrClaimNamespace(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		addOrClaimNamespace(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		addOrClaimNamespace(s.ISCSI.SecretRef)
	case s.StorageOS != nil:
		if s.StorageOS.SecretRef != nil {
			add(s.StorageOS.SecretRef.Namespace, s.StorageOS.SecretRef.Name)
		}
	case s.CSI != nil:
		addReference(s.CSI.NodePublishSecretRef)
		addReference(s.CSI.NodeStageSecretRef)
		addReference(s.CSI.NodeExpandSecretRef)
	}
	return list
}
