// Package protection adds a finalizer to storage objects, so that they are not removed while they are in use. A
// controller removes the finalizer when the object is not used any more (StorageObjectInUseProtection).
package protection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var finalizers = map[schema.GroupResource]string{
	corev1.Resource("persistentvolumeclaims"):     "kubernetes.io/pvc-protection",
	corev1.Resource("persistentvolumes"):          "kubernetes.io/pv-protection",
	storagev1.Resource("volumeattributesclasses"): "kubernetes.io/vac-protection",
}

// Plugin returns the plug-in.
func Plugin() admission.Plugin {
	return admission.Plugin{Name: "StorageObjectInUseProtection", Mutate: mutate}
}

// Groups returns the plug-in that protects pod groups in the same way (PodGroupProtection).
func Groups() admission.Plugin {
	groups := schedulingv1.Resource("podgroups")
	return admission.Plugin{Name: "PodGroupProtection", Mutate: func(_ context.Context, a *admission.Attributes) error {
		if a.Is(groups, admission.Create) {
			protect(a, "scheduling.k8s.io/podgroup-protection")
		}
		return nil
	}}
}

func mutate(_ context.Context, a *admission.Attributes) error {
	if finalizer, ok := finalizers[a.Resource]; ok && a.Is(a.Resource, admission.Create) {
		protect(a, finalizer)
	}
	return nil
}

// protect adds a finalizer to the new object.
func protect(a *admission.Attributes, finalizer string) {
	if have := a.Object.GetFinalizers(); !slices.Contains(have, finalizer) {
		a.Object.SetFinalizers(append(have, finalizer))
	}
}
