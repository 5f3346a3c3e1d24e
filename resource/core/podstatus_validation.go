package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePodStatus validates what a status says about names in the spec.
func validatePodStatus(p *corev1.Pod) field.ErrorList {
	path, s := field.NewPath("status"), &p.Status
	var errs field.ErrorList
	if n := s.NominatedNodeName; n != "" {
		errs = append(errs, validateDNSSubdomain(path.Child("nominatedNodeName"), n)...)
	}
	errs = append(errs, validateClaimStatuses(p, path.Child("resourceClaimStatuses"))...)
	for i := range s.EphemeralContainerStatuses {
		if s.EphemeralContainerStatuses[i].AllocatedResourcesStatus != nil {
			at := path.Child("ephemeralContainerStatuses").Index(i).Child("allocatedResourcesStatus")
			errs = append(errs, field.Forbidden(at, "must not be specified in container status"))
		}
	}
	return errs
}

// validateClaimStatuses requires that each status is of a claim in the spec, and that there is one for each claim.
func validateClaimStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	claims := sets.New[string]()
	for i := range p.Spec.ResourceClaims {
		claims.Insert(p.Spec.ResourceClaims[i].Name)
	}
	seen := sets.New[string]()
	for i, status := range p.Status.ResourceClaimStatuses {
		path := path.Index(i)
		if !claims.Has(status.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), status.Name,
				"must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen.Has(status.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), status.Name))
		}
		seen.Insert(status.Name)
		if n := status.ResourceClaimName; n != nil {
			errs = append(errs, validateDNSSubdomain(path.Child("resourceClaimName"), *n)...)
		}
	}
	return errs
}
