package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/resource/internal/declare"
)

const claimSpecImmutable = "spec is immutable after creation except resources.requests and " +
	"volumeAttributesClassName for bound claims"

// validatePersistentVolumeClaimUpdate forbids changes of a claim's spec, except that a claim
// can be bound, can get the default storage class and, when it is bound, can change its
// requests and its volumeAttributesClassName.
func validatePersistentVolumeClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	path := field.NewPath("spec")
	errs := ValidatePersistentVolumeClaimSpec(&c.Spec, path)
	is, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		is.VolumeName = was.VolumeName
	}
	if was.StorageClassName == nil && is.StorageClassName != nil && was.VolumeName == "" &&
		old.Annotations[corev1.BetaStorageClassAnnotation] == "" {
		is.StorageClassName = nil
	}
	if old.Status.Phase == corev1.ClaimBound {
		if is.Resources.Requests != nil {
			is.Resources.Requests = was.Resources.Requests
		}
		is.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(path, claimSpecImmutable+"\n"+declare.Diff(was, is)))
	}
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if capacity := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(before) < 0 && size.Cmp(capacity) <= 0 {
		errs = append(errs,
			field.Forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	return append(errs, declare.Immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
}
