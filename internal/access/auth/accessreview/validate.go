package accessreview

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateSpec(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs,
			field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func validateAttributes(
	r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes,
) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if (r != nil) == (n != nil) {
		errs = append(errs, field.Invalid(path, internal(n),
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if r == nil {
		return errs
	}
	at := field.NewPath("spec.resourceAttributes")
	if f := r.FieldSelector; f != nil {
		at := at.Child("fieldSelector")
		errs = append(errs, validateSelector(at, f.RawSelector, len(f.Requirements))...)
		options := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, r := range f.Requirements {
			errs = append(errs,
				metav1validation.ValidateFieldSelectorRequirement(r, options, at.Child("requirements").Index(i))...)
		}
	}
	if l := r.LabelSelector; l != nil {
		at := at.Child("labelSelector")
		errs = append(errs, validateSelector(at, l.RawSelector, len(l.Requirements))...)
		options := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, r := range l.Requirements {
			errs = append(errs,
				metav1validation.ValidateLabelSelectorRequirement(r, options, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// internalNonResource has the field names of kube-apiserver's internal type, which
// appear in the message of an invalid field.
type internalNonResource struct{ Path, Verb string }

func internal(n *authorizationv1.NonResourceAttributes) *internalNonResource {
	if n == nil {
		return nil
	}
	return &internalNonResource{n.Path, n.Verb}
}

func validateSelector(at *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw,
			"may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"),
			fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}

// validateMeta returns an error unless the metadata is empty. managedFields are allowed,
// because the server sets them, and so is the namespace of a namespaced review.
func validateMeta(meta *metav1.ObjectMeta, namespaced bool) field.ErrorList {
	rest, text := *meta, "must be empty"
	rest.ManagedFields = nil
	if namespaced {
		rest.Namespace, text = "", "must be empty except for namespace"
	}
	if equality.Semantic.DeepEqual(metav1.ObjectMeta{}, rest) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), *meta, text)}
}

func validateLocal(r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	var errs field.ErrorList
	if at := r.Spec.ResourceAttributes; at != nil && at.Namespace != r.Namespace {
		errs = append(errs,
			field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), at.Namespace, "must match metadata.namespace"))
	}
	if n := r.Spec.NonResourceAttributes; n != nil {
		errs = append(errs,
			field.Invalid(field.NewPath("spec.nonResourceAttributes"), internal(n), "disallowed on this kind of request"))
	}
	return errs
}
