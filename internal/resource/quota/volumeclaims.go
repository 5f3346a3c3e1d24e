package quota

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// classSuffix is between the name of a StorageClass and what is limited for it:
// gold.storageclass.storage.k8s.io/requests.storage.
const classSuffix = ".storageclass.storage.k8s.io/"

// volumeClaims measures the storage of PersistentVolumeClaims, in total and by StorageClass.
type volumeClaims struct{}

func (volumeClaims) tracks(_ context.Context, name corev1.ResourceName) (bool, error) {
	return name == corev1.ResourceRequestsStorage ||
		strings.HasSuffix(string(name), classSuffix+string(corev1.ResourceRequestsStorage)) ||
		strings.HasSuffix(string(name), classSuffix+string(corev1.ResourcePersistentVolumeClaims)), nil
}

func (volumeClaims) use(_ context.Context, obj registry.Object, used corev1.ResourceList) error {
	c := obj.(*corev1.PersistentVolumeClaim)
	// The annotation from before spec.storageClassName wins if it is there, even if it is empty.
	class := c.Annotations[corev1.BetaStorageClassAnnotation]
	if _, annotated := c.Annotations[corev1.BetaStorageClassAnnotation]; !annotated && c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if class != "" {
		used[corev1.ResourceName(class+classSuffix)+corev1.ResourcePersistentVolumeClaims] = quantity(1)
	}
	storage, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return nil
	}
	// After a failed expansion the request may be less than what was allocated for it.
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(storage) > 0 {
		storage = allocated
	}
	storage = rounded(storage)
	used[corev1.ResourceRequestsStorage] = storage
	if class != "" {
		used[corev1.ResourceName(class+classSuffix)+corev1.ResourceRequestsStorage] = storage
	}
	return nil
}

func (volumeClaims) scoped() bool { return true }

func (volumeClaims) missing([]corev1.ResourceName, registry.Object) string { return "" }

func (volumeClaims) scopesChanged(old, obj registry.Object) bool {
	return !slices.Equal(attributesClasses(old.(*corev1.PersistentVolumeClaim)),
		attributesClasses(obj.(*corev1.PersistentVolumeClaim)))
}

// inScope implements special. During a change of its class a claim has up to three classes and is in the scope of
// each, because it may use any of them.
func (volumeClaims) inScope(s *corev1.ScopedResourceSelectorRequirement, obj registry.Object) (bool, error) {
	if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	classes := attributesClasses(obj.(*corev1.PersistentVolumeClaim))
	if s.Operator == corev1.ScopeSelectorOpExists {
		return len(classes) > 0, nil
	}
	if len(classes) == 0 {
		return matchesValue(s, "")
	}
	for _, class := range classes {
		if in, err := matchesValue(s, class); err != nil || in {
			return in, err
		}
	}
	return false, nil
}

// attributesClasses returns the VolumeAttributesClasses of a claim: the one that it asks for, the one that its volume
// has, and the one that its volume is being changed to.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var out []string
	add := func(name string) {
		if name != "" {
			out = append(out, name)
		}
	}
	if name := c.Spec.VolumeAttributesClassName; name != nil {
		add(*name)
	}
	if name := c.Status.CurrentVolumeAttributesClassName; name != nil {
		add(*name)
	}
	if m := c.Status.ModifyVolumeStatus; m != nil {
		add(m.TargetVolumeAttributesClassName)
	}
	return out
}
