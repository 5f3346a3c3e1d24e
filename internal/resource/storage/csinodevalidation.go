package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

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
		if names.Has(d.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), d.Name))
		}
		names.Insert(d.Name)
	}
	return errs
}

// validateCSINodeUpdate forbids changes of a driver that stays, except of the number of volumes that it can attach.
func validateCSINodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := validateCSINode(n)
	for _, was := range old.Spec.Drivers {
		for _, is := range n.Spec.Drivers {
			if is.Name != was.Name {
				continue
			}
			is.Allocatable, was.Allocatable = nil, nil
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
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*a.Count), path.Child("allocatable", "count").K8s())...)
	}
	return append(errs, validateTopologyKeys(d.TopologyKeys, path)...)
}

// validateTopologyKeys reports the keys as errors of the driver, as kube-apiserver does.
func validateTopologyKeys(keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.Set[string]{}
	for _, key := range keys {
		if key == "" {
			errs = append(errs, field.Required(path, ""))
		}
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(path, key))
		}
		seen.Insert(key)
		for _, message := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(path, key, message))
		}
	}
	return errs
}
