package storage

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func validateCSINode(n *storagev1.CSINode) field.ErrorList {
	path := field.NewPath("spec", "drivers")
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range n.Spec.Drivers {
		d, path := &n.Spec.Drivers[i], path.Index(i)
		errs = append(errs, validateCSINodeDriver(d, path)...)
		errs = append(errs, field.Unique(names, path.Child("name"), d.Name)...)
	}
	return errs
}

// validateCSINodeUpdate forbids changes of a driver that stays. mutable allows changes of the number of volumes that it can
// attach.
// The kubelet adds and removes drivers when they register and unregister, so the list itself may change. The
// number of volumes is mutable since KEP-4876.
func validateCSINodeUpdate(n, old *storagev1.CSINode, mutable bool) field.ErrorList {
	errs := validateCSINode(n)
	for _, was := range old.Spec.Drivers {
		for _, is := range n.Spec.Drivers {
			if is.Name != was.Name {
				continue
			}
			if mutable {
				// Both are copies of the list items, so the objects do not change.
				is.Allocatable, was.Allocatable = nil, nil
			}
			if !equality.Semantic.DeepEqual(is, was) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "drivers"), declare.Internal(is), "field is immutable"))
			}
		}
	}
	return errs
}

func validateCSINodeDriver(d *storagev1.CSINodeDriver, path *field.Path) field.ErrorList {
	const longestNodeID = 256
	errs := core.ValidateCSIDriverName(d.Name, path.Child("name"))
	if d.NodeID == "" {
		errs = append(errs, field.Required(path.Child("nodeID"), ""))
	} else if len(d.NodeID) > longestNodeID {
		errs = append(errs, field.Invalid(path.Child("nodeID"), d.NodeID, "must be 256 characters or less"))
	}
	if a := d.Allocatable; a != nil && a.Count != nil {
		errs = append(errs, field.NonNegative(path.Child("allocatable", "count"), *a.Count)...)
	}
	return append(errs, validateTopologyKeys(d.TopologyKeys, path)...)
}

// validateTopologyKeys reports the keys as errors of the driver, as kube-apiserver does.
func validateTopologyKeys(keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for _, key := range keys {
		errs = append(errs, field.NotEmpty(path, key)...)
		errs = append(errs, field.Unique(seen, path, key)...)
		errs = append(errs, field.LabelKey(path, key)...)
	}
	return errs
}

// validateStorageHealth validates what the drivers say of their storage (KEP-1432).
func validateStorageHealth(reports []storagev1.StorageHealth, path *field.Path) field.ErrorList {
	const maxConditions = 16
	var errs field.ErrorList
	names := sets.Set[string]{}
	for i := range reports {
		r, at := &reports[i], path.Index(i)
		errs = append(errs, field.Unique(names, at, r.Name)...)
		errs = append(errs, field.NotEmptyAnd(at.Child("name"), r.Name, func(p *field.Path, name string) field.ErrorList {
			return core.ValidateCSIDriverName(name, p)
		})...)
		if tooMany := field.MaxItems(at.Child("healthConditions"), len(r.HealthConditions), maxConditions); tooMany != nil {
			errs = append(errs, tooMany...)
			continue
		}
		for j := range r.HealthConditions {
			errs = append(errs, validateHealthCondition(&r.HealthConditions[j], at.Child("healthConditions").Index(j))...)
		}
	}
	return errs
}

func validateHealthCondition(c *storagev1.StorageHealthCondition, path *field.Path) field.ErrorList {
	const longestReason, longestMessage = 256, 1024 // bytes
	errs := field.OneOf(path.Child("status"), c.Status, storagev1.StorageDegraded, storagev1.StorageUnreachable)
	at := path.Child("reason")
	if c.Reason == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, field.Messages(at, c.Reason, metav1validation.IsValidConditionReason(c.Reason))...)
		errs = append(errs, field.MaxLength(at, c.Reason, longestReason)...)
	}
	errs = append(errs, field.MaxLength(path.Child("message"), c.Message, longestMessage)...)
	errs = append(errs, field.OptionalOneOf(path.Child("accessMode"), c.AccessMode, corev1.ReadOnlyMany, corev1.ReadWriteMany,
		corev1.ReadWriteOnce, corev1.ReadWriteOncePod)...)
	return append(errs, field.OptionalOneOf(path.Child("volumeMode"), c.VolumeMode, corev1.PersistentVolumeBlock,
		corev1.PersistentVolumeFilesystem)...)
}
