package core

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// ValidateWorkload validates the selector and the template of a workload whose pods are always
// restarted. The labels of the template have to match the selector. kind is the kind of the
// workload in the message about an empty selector; invalidSelector is the message about a
// selector that cannot be parsed. old is the template before an update, nil for a new object.
// An invalidSelector of "-" means that a missing selector gets no error of its own. It is for DaemonSets, which
// never have this message.
func (g *PodGates) ValidateWorkload(
	selector *metav1.LabelSelector, t, old *corev1.PodTemplateSpec, kind, invalidSelector string, spec *field.Path,
) field.ErrorList {
	path := spec.Child("selector")
	var errs field.ErrorList
	if selector == nil {
		errs = append(errs, field.RequiredIf(invalidSelector != "-", path, "")...)
	} else {
		errs = append(errs, field.LabelSelector(path, selector)...)
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			errs = append(errs, field.Invalid(path, selector, "empty selector is invalid for "+kind))
		}
	}
	name := workloadNames[kind]
	s, err := metav1.LabelSelectorAsSelector(selector)
	// kube-apiserver ignores the parse error for a DaemonSet. s is nil then, and the labels are not compared.
	if err == nil || kind == "daemonset" {
		errs = append(errs, g.validateAlwaysRestartedTemplate(s, t, old, name, spec.Child("template"))...)
		return errs
	}
	errs = append(errs, field.Invalid(path, selector, invalidSelector))
	// For a StatefulSet, kube-apiserver checks the restart policy although the selector cannot be parsed.
	if kind == "statefulset" {
		errs = append(errs, validateAlwaysRestarted(t, name, spec.Child("template"))...)
	}
	return errs
}

// workloadNames are the kinds that messages name, by the kind of the workload. The template of a Deployment is
// validated as that of its ReplicaSets.
var workloadNames = map[string]string{
	"deployment": "ReplicaSet", "statefulset": "StatefulSet", "daemonset": "DaemonSet",
}

// validateAlwaysRestartedTemplate validates a template of pods that are always restarted. If
// selector is nil, the labels are not compared with it. kind is the kind in messages. old is the template before an
// update, nil for a new object.
func (g *PodGates) validateAlwaysRestartedTemplate(
	selector labels.Selector, t, old *corev1.PodTemplateSpec, kind string, path *field.Path,
) field.ErrorList {
	errs := field.InvalidIf(selector != nil && !selector.Empty() && !selector.Matches(labels.Set(t.Labels)),
		path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")
	errs = append(errs, g.ValidateTemplate(t, old, path)...)
	return append(errs, validateAlwaysRestarted(t, kind, path)...)
}

// validateAlwaysRestarted requires that pods of a template are always restarted, and have no deadline.
// A pod that ends, by its restart policy or by a deadline, would be replaced at once.
func validateAlwaysRestarted(t *corev1.PodTemplateSpec, kind string, path *field.Path) field.ErrorList {
	errs := field.OneOf(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"),
			"activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

// ValidateIntOrPercent accepts non-negative numbers and percentages.
// The text "10%" is a percentage. The text "10" is refused.
func ValidateIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if v.Type == intstr.String {
		return field.Messages(path, v, validation.IsValidPercent(v.StrVal))
	}
	return field.NonNegative(path, v.IntVal)
}

// ValidateAtMost100Percent returns an error for more than 100%.
func ValidateAtMost100Percent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if n, ok := percent(v); ok && n > 100 {
		return field.ErrorList{field.Invalid(path, v, "must not be greater than 100%")}
	}
	return nil
}

// percent returns the number of a percentage. One that no int has becomes the largest int.
func percent(v intstr.IntOrString) (int, bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	n, _ := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%")) // the only error is one of the range
	return n, true
}

// IntOrPercentValue returns the number, of a percentage without the percent sign.
// Callers use it only to tell if a value is zero: 5 and 5% have the same result.
func IntOrPercentValue(v intstr.IntOrString) int {
	if v.Type == intstr.String {
		if n, ok := percent(v); ok {
			return n
		}
	}
	return v.IntValue()
}

// validateReplicationController validates a ReplicationController. old is nil for a new one.
func (g *PodGates) validateReplicationController(c, old *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	errs := field.NonNegative(path.Child("minReadySeconds"), c.Spec.MinReadySeconds)
	errs = append(errs, field.RequiredIf(len(c.Spec.Selector) == 0, path.Child("selector"), "")...)
	if c.Spec.Replicas == nil {
		errs = append(errs, field.Required(path.Child("replicas"), ""))
	} else {
		errs = append(errs, field.NonNegative(path.Child("replicas"), *c.Spec.Replicas)...)
	}
	if c.Spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), ""))
	}
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = old.Spec.Template
	}
	return append(errs, g.validateAlwaysRestartedTemplate(labels.Set(c.Spec.Selector).AsSelectorPreValidated(),
		c.Spec.Template, before, "ReplicationController", path.Child("template"))...)
}

func validateReplicationControllerStatus(s *corev1.ReplicationControllerStatus, path *field.Path) field.ErrorList {
	errs := field.NonNegative(path.Child("replicas"), s.Replicas)
	errs = append(errs, field.NonNegative(path.Child("fullyLabeledReplicas"), s.FullyLabeledReplicas)...)
	errs = append(errs, field.NonNegative(path.Child("readyReplicas"), s.ReadyReplicas)...)
	errs = append(errs, field.NonNegative(path.Child("availableReplicas"), s.AvailableReplicas)...)
	errs = append(errs, field.NonNegative(path.Child("observedGeneration"), s.ObservedGeneration)...)
	atMost := func(name string, n, most int32, message string) {
		errs = append(errs, field.InvalidIf(n > most, path.Child(name), n, message)...)
	}
	const moreThanReplicas = "cannot be greater than status.replicas"
	atMost("fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, moreThanReplicas)
	atMost("readyReplicas", s.ReadyReplicas, s.Replicas, moreThanReplicas)
	atMost("availableReplicas", s.AvailableReplicas, s.Replicas, moreThanReplicas)
	atMost("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "cannot be greater than readyReplicas")
	return errs
}
