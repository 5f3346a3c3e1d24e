package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateWorkload validates the selector and the template of a workload whose pods are always
// restarted. The labels of the template have to match the selector. kind is the kind of the
// workload in the message about an empty selector; invalidSelector is the message about a
// selector that cannot be parsed.
func ValidateWorkload(
	selector *metav1.LabelSelector, t *corev1.PodTemplateSpec, kind, invalidSelector string, spec *field.Path,
) field.ErrorList {
	path := spec.Child("selector")
	var errs field.ErrorList
	if selector == nil {
		if invalidSelector != "-" {
			errs = append(errs, field.Required(path, ""))
		}
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(selector, selectorOptions, path)...)
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			errs = append(errs, field.Invalid(path, selector, "empty selector is invalid for "+kind))
		}
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		if invalidSelector != "-" {
			errs = append(errs, field.Invalid(path, selector, invalidSelector))
		}
	}
	return append(errs, ValidateAlwaysRestartedTemplate(s, t, spec.Child("template"))...)
}

// ValidateAlwaysRestartedTemplate validates a template of pods that are always restarted. If
// selector is nil, the labels are not compared with it.
func ValidateAlwaysRestartedTemplate(
	selector labels.Selector, t *corev1.PodTemplateSpec, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if selector != nil && !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs,
			field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, ValidatePodTemplateSpec(t, path)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs,
			field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy,
				[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs,
			field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicaSet is not Supported"))
	}
	return errs
}

// ValidateIntOrPercent accepts non-negative numbers and percentages.
func ValidateIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if v.Type == intstr.String {
		return invalid(path, v, validation.IsValidPercent(v.StrVal))
	}
	return nonNegative(path, v.IntVal)
}

// ValidateAtMost100Percent returns an error for more than 100%.
func ValidateAtMost100Percent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if n, ok := percent(v); ok && n > 100 {
		return field.ErrorList{field.Invalid(path, v, "must not be greater than 100%")}
	}
	return nil
}

func percent(v intstr.IntOrString) (int, bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, 100, false)
	return n, err == nil
}

// IntOrPercentValue returns the number, of a percentage without the percent sign.
func IntOrPercentValue(v intstr.IntOrString) int {
	if v.Type == intstr.String {
		if n, ok := percent(v); ok {
			return n
		}
	}
	return v.IntValue()
}

func validateReplicationController(c *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	errs := nonNegative(path.Child("minReadySeconds"), c.Spec.MinReadySeconds)
	if len(c.Spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if c.Spec.Replicas == nil {
		errs = append(errs, field.Required(path.Child("replicas"), ""))
	} else {
		errs = append(errs, nonNegative(path.Child("replicas"), *c.Spec.Replicas)...)
	}
	if c.Spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), ""))
	}
	return append(errs,
		ValidateAlwaysRestartedTemplate(labels.Set(c.Spec.Selector).AsSelectorPreValidated(), c.Spec.Template,
			path.Child("template"))...)
}
