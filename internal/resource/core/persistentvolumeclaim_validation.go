package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

const claimSpecImmutable = "spec is immutable after creation except resources.requests and " +
	"volumeAttributesClassName for bound claims"

// validatePersistentVolumeClaimUpdate forbids changes of a claim's spec, except that a claim
// can be bound, can get the default storage class and, when it is bound, can change its
// requests and its volumeAttributesClassName.
func validatePersistentVolumeClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateClaimSpec(&c.Spec, path)
	if !hasSourceGroup(&old.Spec) { // otherwise the old group may be invalid
		errs = append(errs, validateSourceGroups(&c.Spec, path)...)
	}
	// The copies get equal values where a change is allowed; any difference that is left is an error.
	is, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	// kube-controller-manager sets the default class in a claim that was made before there was one (KEP-3333). The class may also move
	// from the annotation that had it before to the field.
	class, classed := old.Annotations[storageClassAnnotation]
	after, keepsClass := c.Annotations[storageClassAnnotation]
	named := was.StorageClassName == nil && is.StorageClassName != nil
	moved := named && classed && *is.StorageClassName == class && (!keepsClass || after == class)
	if named && (!classed || *is.StorageClassName == class) {
		is.StorageClassName = nil
	}
	// The volume is set when the claim is bound.
	if was.VolumeName == "" {
		was.VolumeName = is.VolumeName
	}
	// A request for another size resizes the volume, and another class modifies it (KEP-3751). A claim that is
	// not bound has no volume for that.
	if old.Status.Phase == corev1.ClaimBound {
		if is.Resources.Requests != nil {
			is.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		is.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(path, claimSpecImmutable+"\n"+declare.Diff(was, is)))
	}
	// A request may become smaller again, so that a user can correct one that cannot be fulfilled (KEP-1790). It
	// must stay larger than the volume is: volumes do not shrink.
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if capacity := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(before) < 0 && size.Cmp(capacity) <= 0 {
		errs = append(errs,
			field.Forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	if !moved && after != class {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations", storageClassAnnotation), after,
			apivalidation.FieldImmutableErrorMsg))
	}
	errs = append(errs, declare.Immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Status.CurrentVolumeAttributesClassName != nil {
		errs = append(errs, validateAttributesClassUpdate(
			c.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName, path.Child("volumeAttributesClassName"))...)
	}
	return errs
}

// validateAttributesClassUpdate forbids to remove the name of the VolumeAttributesClass from a claim whose volume has
// one (status.currentVolumeAttributesClassName).
// A modification that has failed before the volume got its first class may be cancelled by removing the name.
func validateAttributesClassUpdate(is, was *string, path *field.Path) field.ErrorList {
	const text = "update to %s is forbidden when status.currentVolumeAttributesClassName is not nil"
	switch {
	case is == nil && was != nil:
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf(text, "nil"))}
	case is != nil && *is == "" && (was == nil || *was != ""):
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf(text, "empty string"))}
	}
	return nil
}

// validatePersistentVolumeClaimStatus validates the sizes in the status of a claim, and the states of its resizing.
// The states and allocatedResources tell how far an expansion is, and who has to continue it (KEP-1790): the
// controller of the driver, or the node.
func validatePersistentVolumeClaimStatus(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	path, s := field.NewPath("status"), &c.Status
	for name, q := range s.Capacity {
		errs = append(errs, validateBasicQuantity(q, path.Child("capacity").Key(string(name)))...)
	}
	states := []corev1.ClaimResourceStatus{
		corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress,
		corev1.PersistentVolumeClaimNodeResizeInfeasible,
	}
	for name, state := range s.AllocatedResourceStatuses {
		path := path.Child("allocatedResourceStatuses")
		errs = append(errs, validateClaimResourceName(name, path)...)
		if !slices.Contains(states, state) {
			errs = append(errs, field.NotSupported(path, string(name), slices.Sorted(slices.Values(states))))
		}
	}
	for name, q := range s.AllocatedResources {
		path := path.Child("allocatedResources")
		if wrong := validateClaimResourceName(name, path); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		errs = append(errs, validateBasicQuantity(q, path.Key(string(name)))...)
	}
	if h := s.HealthStatus; h != nil {
		var before []corev1.VolumeHealthCondition
		if old.Status.HealthStatus != nil {
			before = old.Status.HealthStatus.HealthConditions
		}
		errs = append(errs,
			validateVolumeConditions(h.HealthConditions, before, path.Child("healthStatus", "healthConditions"))...)
	}
	return errs
}

// validateClaimResourceName allows storage, and names with a domain that is not one of Kubernetes.
func validateClaimResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := field.LabelKey(path, string(name))
	if len(errs) == 0 && isNativeResource(string(name)) && name != corev1.ResourceStorage {
		errs = append(errs, field.NotSupported(path, name, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}
