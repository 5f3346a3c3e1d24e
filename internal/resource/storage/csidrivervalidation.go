package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateCSIDriverUpdate forbids changes of two fields. podInfoOnMount and fsGroupPolicy may change since 1.29,
// and storageCapacity since 1.23.
func validateCSIDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateCSIDriverSpec(&d.Spec, path)
	// The field has this name in kube-apiserver's error.
	errs = append(errs,
		declare.Immutable(d.Spec.AttachRequired, old.Spec.AttachRequired, path.Child("attachedRequired"))...)
	return append(errs,
		declare.Immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, path.Child("volumeLifecycleModes"))...)
}

// validateCSIDriverSpec validates what a client can set wrongly. All other fields have defaults.
func validateCSIDriverSpec(s *storagev1.CSIDriverSpec, path *field.Path) field.ErrorList {
	const leastPeriod = 10 // seconds
	errs := field.OptionalOneOf(path.Child("fsGroupPolicy"), s.FSGroupPolicy, storagev1.FileFSGroupPolicy,
		storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	errs = append(errs, validateTokenRequests(s.TokenRequests, path.Child("tokenRequests"))...)
	for _, m := range s.VolumeLifecycleModes {
		errs = append(errs, field.OneOf(path.Child("volumeLifecycleModes"), m, storagev1.VolumeLifecyclePersistent,
			storagev1.VolumeLifecycleEphemeral)...)
	}
	errs = append(errs, field.AtLeast(path.Child("nodeAllocatableUpdatePeriodSeconds"),
		s.NodeAllocatableUpdatePeriodSeconds, leastPeriod, "must be greater than or equal to 10 seconds")...)
	// The value false is refused too.
	if in := s.ServiceAccountTokenInSecrets; in != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(path.Child("serviceAccountTokenInSecrets"), *in,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

// validateTokenRequests has the same limits of the expiration as a TokenRequest, which the kubelet creates from
// it. Audiences differ, because the driver gets a map of tokens by audience. Only one audience can be empty, which
// means the audiences of the API server.
func validateTokenRequests(requests []storagev1.TokenRequest, path *field.Path) field.ErrorList {
	const least, most = 10 * 60, 1 << 32 // seconds
	var errs field.ErrorList
	audiences := sets.Set[string]{}
	for i, r := range requests {
		path := path.Index(i)
		if audiences.Has(r.Audience) {
			errs = append(errs, field.Duplicate(path.Child("audience"), r.Audience))
			continue
		}
		audiences.Insert(r.Audience)
		switch n := r.ExpirationSeconds; {
		case n == nil:
		case *n < least:
			errs = append(errs,
				field.Invalid(path.Child("expirationSeconds"), *n, "may not specify a duration less than 10 minutes"))
		case *n > most:
			errs = append(errs,
				field.Invalid(path.Child("expirationSeconds"), *n, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}
