package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateCSIStorageCapacity validates a capacity. kube-apiserver does not validate maximumVolumeSize. anyValues allows
// values in the topology that labels cannot have.
func validateCSIStorageCapacity(c *storagev1.CSIStorageCapacity, anyValues bool) field.ErrorList {
	errs := field.DNSSubdomain(field.NewPath("storageClassName"), c.StorageClassName)
	if c.NodeTopology != nil {
		options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: anyValues}
		errs = append(errs,
			metav1validation.ValidateLabelSelector(c.NodeTopology, options, field.NewPath("nodeTopology").K8s())...)
	}
	if q := c.Capacity; q != nil {
		errs = append(errs, core.ValidateNonNegativeQuantity(field.NewPath("capacity"), *q)...)
	}
	return errs
}

// validateCSIStorageCapacityUpdate forbids changes of what the capacity is about.
// If the old topology has values that labels cannot have, the new one may have them too: it is the same.
func validateCSIStorageCapacityUpdate(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	invalidBefore := old.NodeTopology != nil && len(metav1validation.ValidateLabelSelector(
		old.NodeTopology, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0
	errs := validateCSIStorageCapacity(c, invalidBefore)
	errs = append(errs, declare.Immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...)
	return append(errs, declare.Immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
}
