package storage

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateStorageClass validates a class. It refuses the reclaim policy Recycle, which a PersistentVolume may
// have.
func validateStorageClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateDriver(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
	policies := []corev1.PersistentVolumeReclaimPolicy{
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain,
	}
	if p := c.ReclaimPolicy; p != nil && *p != "" && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(field.NewPath("reclaimPolicy"), *p, policies))
	}
	modes := []storagev1.VolumeBindingMode{storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer}
	switch m := c.VolumeBindingMode; {
	case m == nil:
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	case !slices.Contains(modes, *m):
		errs = append(errs, field.NotSupported(field.NewPath("volumeBindingMode"), *m, modes))
	}
	return append(errs, validateAllowedTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

// validateStorageClassUpdate forbids changes of how volumes are provisioned: volumes of the class exist that were
// provisioned in the old way. mountOptions, allowVolumeExpansion and allowedTopologies may change.
func validateStorageClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validateStorageClass(c)
	errs = append(errs, declare.Unchanged(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, declare.Unchanged(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, declare.Unchanged(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs,
		declare.Unchanged(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

// validateAllowedTopologies requires terms that differ. kube-apiserver compares each term also with as many empty ones
// as there are terms, so it reports an empty term that often.
func validateAllowedTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	if len(terms) == 0 {
		return nil
	}
	var errs field.ErrorList
	seen := make([]map[string]sets.Set[string], len(terms))
	for i := range terms {
		values, own := validateTopologyTerm(&terms[i], path.Index(i))
		errs = append(errs, own...)
		for _, other := range seen {
			errs = append(errs, field.DuplicateIf(sameTopology(values, other), path.Index(i).Child("matchLabelExpressions"),
				"")...)
		}
		seen = append(seen, values)
	}
	return errs
}

// sameTopology compares sets: the order of keys and of values does not matter.
func sameTopology(a, b map[string]sets.Set[string]) bool {
	if len(a) != len(b) {
		return false
	}
	for key, values := range a {
		if other, ok := b[key]; !ok || !values.Equal(other) {
			return false
		}
	}
	return true
}

// validateTopologyTerm also returns the values of each key.
func validateTopologyTerm(
	t *corev1.TopologySelectorTerm, path *field.Path,
) (map[string]sets.Set[string], field.ErrorList) {
	var errs field.ErrorList
	keys := map[string]sets.Set[string]{}
	for i, r := range t.MatchLabelExpressions {
		path := path.Child("matchLabelExpressions").Index(i)
		errs = append(errs, field.RequiredIf(len(r.Values) == 0, path.Child("values"), "")...)
		values := sets.New[string]()
		for j, v := range r.Values {
			errs = append(errs, field.Unique(values, path.Child("values").Index(j), v)...)
		}
		errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key").K8s())...)
		if _, twice := keys[r.Key]; twice {
			errs = append(errs, field.Duplicate(path.Child("key"), r.Key))
		}
		keys[r.Key] = values
	}
	return keys, errs
}
