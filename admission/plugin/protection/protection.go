// Package protection adds a finalizer to storage objects, so that they are not removed while they are in use. A
// controller removes the finalizer when the object is not used any more (StorageObjectInUseProtection).
package protection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/admission"
)

// finalizers are the finalizers by resource.
var finalizers = map[schema.GroupResource]string{
	corev1.Resource("persistentvolumeclaims"):     "kubernetes.io/pvc-protection",
	corev1.Resource("persistentvolumes"):          "kubernetes.io/pv-protection",
	storagev1.Resource("volumeattributesclasses"): "kubernetes.io/vac-protection",
}

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "StorageObjectInUseProtection", Mutate: mutate}
}

func mutate(_ context.Context, a *admission.Attributes) error {
	finalizer, ok := finalizers[a.Resource]
	if !ok || !a.Is(a.Resource, admission.Create) {
		return nil
	}
	if have := a.Object.GetFinalizers(); !slices.Contains(have, finalizer) {
		a.Object.SetFinalizers(append(have, finalizer))
	}
	return nil
}
