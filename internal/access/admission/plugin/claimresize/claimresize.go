// Package claimresize refuses to enlarge a PersistentVolumeClaim unless it is bound and its storage class allows that
// (PersistentVolumeClaimResize).
package claimresize

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var (
	claims  = corev1.Resource("persistentvolumeclaims")
	classes = storagev1.Resource("storageclasses")
)

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	return admission.Plugin{Name: "PersistentVolumeClaimResize", Validate: (&plugin{in}).validate}
}

type plugin struct{ objects admission.Objects }

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(claims, admission.Update) {
		return nil
	}
	claim, old := a.Object.(*corev1.PersistentVolumeClaim), a.Old.(*corev1.PersistentVolumeClaim)
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(old.Spec.Resources.Requests[corev1.ResourceStorage]) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		//nolint:staticcheck // kube-apiserver's text
		return a.Forbiddenf("Only bound persistent volume claims can be expanded")
	}
	if class := className(claim); class == "" || class != className(old) || !p.allowsExpansion(ctx, class) {
		return a.Forbiddenf("only dynamically provisioned pvc can be resized and the storageclass that " +
			"provisions the pvc must support resize")
	}
	return nil
}

// className returns the name of the storage class of a claim. The annotation, which is older than the field, takes
// precedence.
func className(claim *corev1.PersistentVolumeClaim) string {
	if class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return ptr.Deref(claim.Spec.StorageClassName, "")
}

// allowsExpansion reports whether there is a storage class of that name which allows larger claims. An error means no.
func (p *plugin) allowsExpansion(ctx context.Context, name string) bool {
	class, err := p.objects.Lookup(ctx, classes, "", name)
	if err != nil || class == nil {
		return false
	}
	return ptr.Deref(class.(*storagev1.StorageClass).AllowVolumeExpansion, false)
}
