// Package storageclass sets the default class of a PersistentVolumeClaim without a class (DefaultStorageClass).
package storageclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var (
	claims  = corev1.Resource("persistentvolumeclaims")
	classes = storagev1.Resource("storageclasses")
)

// The annotations of the default class, the second one from before it was stable.
const (
	defaultClass     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	p := plugin{in}
	return admission.Plugin{Name: "DefaultStorageClass", Mutate: p.mutate}
}

type plugin struct{ objects admission.Objects }

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(claims, admission.Create) {
		return nil
	}
	claim := a.Object.(*corev1.PersistentVolumeClaim)
	if _, beta := claim.Annotations[corev1.BetaStorageClassAnnotation]; beta || claim.Spec.StorageClassName != nil {
		return nil
	}
	all, err := p.objects.List(ctx, classes, "")
	if err != nil {
		return err
	}
	if class := admission.Newest(all, isDefault); class != nil {
		claim.Spec.StorageClassName = ptr.To(class.GetName())
	}
	return nil
}

func isDefault(class registry.Object) bool {
	annotations := class.GetAnnotations()
	return annotations[defaultClass] == "true" || annotations[betaDefaultClass] == "true"
}
