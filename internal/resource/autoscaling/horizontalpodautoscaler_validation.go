package autoscaling

import (
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	// maxStabilizationWindow and maxPolicyPeriod are in seconds.
	// They are one hour and half an hour: the limits in the documentation of the fields in autoscaling/v2.
	maxStabilizationWindow = 3600
	maxPolicyPeriod        = 1800
)

// lenience is what an update may keep although a new autoscaler may not have it.
type lenience struct {
	// zeroReplicas allows minReplicas 0. A new autoscaler needs the feature gate HPAScaleToZero for it.
	zeroReplicas bool
	// anyTargetVersion allows a target whose apiVersion has no group, and one that cannot be parsed.
	anyTargetVersion bool
	// anyMetricVersion allows objects of metrics whose apiVersion cannot be parsed.
	anyMetricVersion bool
}

func validateAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler, toZero bool) field.ErrorList {
	return validateSpec(&h.Spec, lenience{zeroReplicas: toZero}, field.NewPath("spec"))
}

// validateAutoscalerUpdate accepts what the old autoscaler already had. Otherwise no client could update an
// autoscaler that was stored before a rule existed, or while a gate was on.
func validateAutoscalerUpdate(h, old *autoscalingv2.HorizontalPodAutoscaler, toZero bool) field.ErrorList {
	return validateSpec(&h.Spec, lenience{
		zeroReplicas:     toZero || old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0,
		anyTargetVersion: checkTargetVersion(&old.Spec.ScaleTargetRef) != nil,
		anyMetricVersion: slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
			return m.Object != nil && checkVersion(&m.Object.DescribedObject) != nil
		}),
	}, field.NewPath("spec"))
}

func validateAutoscalerStatus(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	path := field.NewPath("status")
	errs := field.NonNegative(path.Child("currentReplicas"), h.Status.CurrentReplicas)
	errs = append(errs, field.NonNegative(path.Child("desiredReplicas"), h.Status.DesiredReplicas)...)
	for i, c := range h.Status.Conditions {
		at := path.Child("conditions").Index(i).Child("observedGeneration")
		errs = append(errs, field.Optional(at, c.ObservedGeneration, field.NonNegative)...)
	}
	return errs
}

func validateSpec(s *autoscalingv2.HorizontalPodAutoscalerSpec, l lenience, path *field.Path) field.ErrorList {
	errs := validateReplicas(s, l, path)
	target := path.Child("scaleTargetRef")
	errs = append(errs, validateReference(&s.ScaleTargetRef, target)...)
	if err := checkTargetVersion(&s.ScaleTargetRef); err != nil && !l.anyTargetVersion {
		errs = append(errs, field.Invalid(target.Child("apiVersion"), s.ScaleTargetRef.APIVersion, err.Error()))
	}
	errs = append(errs, validateMetrics(s, l, path.Child("metrics"))...)
	if b := s.Behavior; b != nil {
		at := path.Child("behavior")
		errs = append(errs, validateScalingRules(b.ScaleUp, at.Child("scaleUp"))...)
		errs = append(errs, validateScalingRules(b.ScaleDown, at.Child("scaleDown"))...)
	}
	return errs
}

// validateReplicas validates the range of replicas. A missing minReplicas has the default 1, but maxReplicas has
// no default: 0 counts as missing.
func validateReplicas(
	s *autoscalingv2.HorizontalPodAutoscalerSpec, l lenience, path *field.Path,
) (errs field.ErrorList) {
	least, at := int32(1), path.Child("minReplicas")
	if l.zeroReplicas {
		least = 0
	}
	if n := s.MinReplicas; n != nil && *n < least {
		errs = append(errs, field.Invalid(at, *n, fmt.Sprintf("must be greater than or equal to %d", least)))
	}
	at = path.Child("maxReplicas")
	switch n := s.MaxReplicas; {
	case n == 0:
		errs = append(errs, field.Required(at, ""))
	case n < 0:
		errs = append(errs, field.Invalid(at, n, "must be greater than or equal to 1"))
	}
	return append(errs, field.InvalidIf(s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas, at, s.MaxReplicas,
		"must be greater than or equal to `minReplicas`")...)
}

// validateReference validates kind and name of an object, which become parts of a path.
func validateReference(r *autoscalingv2.CrossVersionObjectReference, path *field.Path) field.ErrorList {
	return field.Join(field.NotEmptyAnd(path.Child("kind"), r.Kind, field.PathSegment),
		field.NotEmptyAnd(path.Child("name"), r.Name, field.PathSegment))
}

// checkTargetVersion returns an error for the apiVersion of a target that has no group. ReplicationControllers are the
// only objects of the core group that can be scaled.
func checkTargetVersion(r *autoscalingv2.CrossVersionObjectReference) error {
	version, err := schema.ParseGroupVersion(r.APIVersion)
	if err == nil && version.Group == "" && r.Kind != "ReplicationController" {
		err = errors.New("apiVersion must specify API group")
	}
	return err
}

// checkVersion returns an error for an apiVersion that is not one. It may be empty.
func checkVersion(r *autoscalingv2.CrossVersionObjectReference) error {
	_, err := schema.ParseGroupVersion(r.APIVersion)
	return err
}

// validateMetrics validates the metrics. With 0 replicas there are no pods to measure: a metric of pods or of
// their resources could not start the first one again. Scaling to zero therefore needs a metric of another source
// (KEP-2021).
func validateMetrics(
	s *autoscalingv2.HorizontalPodAutoscalerSpec, l lenience, path *field.Path,
) (errs field.ErrorList) {
	outside := false // whether a metric exists even without pods
	for i := range s.Metrics {
		m := &s.Metrics[i]
		errs = append(errs, validateMetric(m, path.Index(i))...)
		if m.Object != nil && !l.anyMetricVersion {
			if err := checkVersion(&m.Object.DescribedObject); err != nil {
				errs = append(errs, field.Invalid(path.Index(i).Child("object", "describedObject", "apiVersion"),
					m.Object.DescribedObject.APIVersion, err.Error()))
			}
		}
		outside = outside || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	return append(errs, field.ForbiddenIf(s.MinReplicas != nil && *s.MinReplicas == 0 && !outside, path,
		"must specify at least one Object or External metric to support scaling to zero replicas")...)
}

// metricSource is one of the sources that a metric may have.
type metricSource struct {
	kind     autoscalingv2.MetricSourceType
	name     string // of the field
	present  bool
	validate func(*field.Path) field.ErrorList
}

// sourcesOf returns the sources in the order in which kube-apiserver validates them.
func sourcesOf(m *autoscalingv2.MetricSpec) [5]metricSource {
	return [...]metricSource{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil,
			func(at *field.Path) field.ErrorList { return validateObjectMetric(m.Object, at) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil,
			func(at *field.Path) field.ErrorList { return validateExternalMetric(m.External, at) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil,
			func(at *field.Path) field.ErrorList { return validatePodsMetric(m.Pods, at) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil,
			func(at *field.Path) field.ErrorList { return validateResourceMetric(m.Resource, at) }},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil,
			func(at *field.Path) field.ErrorList { return validateContainerResourceMetric(m.ContainerResource, at) }},
	}
}

// validateMetric validates a metric, which has the source that its type names and no other. If it has several
// sources, only the first one is validated.
func validateMetric(m *autoscalingv2.MetricSpec, path *field.Path) (errs field.ErrorList) {
	at := path.Child("type")
	errs = append(errs, field.RequiredIf(m.Type == "", at, "must specify a metric source type")...)
	sources := sourcesOf(m)
	var known bool
	var present int
	for _, s := range sources {
		known = known || s.kind == m.Type
		if s.present {
			present++
		}
		if s.present && present == 1 {
			errs = append(errs, s.validate(path.Child(s.name))...)
		}
	}
	if !known {
		kinds := []autoscalingv2.MetricSourceType{
			autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
			autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
		}
		// kube-apiserver reports an unknown type twice.
		errs = append(errs, field.NotSupported(at, m.Type, kinds), field.NotSupported(at, m.Type, kinds))
	}
	for _, s := range sources {
		switch {
		case s.kind == m.Type && !s.present:
			errs = append(errs, field.Required(path.Child(s.name), "must populate information for the given metric source"))
		case s.kind != m.Type && s.present && present > 1:
			errs = append(errs, field.Forbidden(path.Child(s.name), "must populate the given metric source only"))
		}
	}
	return errs
}

// validateObjectMetric requires a value or an average value. Unlike for an external metric, both may be set.
func validateObjectMetric(m *autoscalingv2.ObjectMetricSource, path *field.Path) field.ErrorList {
	errs := validateReference(&m.DescribedObject, path.Child("describedObject"))
	errs = append(errs, validateMetricName(&m.Metric, path)...)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	return append(errs, field.RequiredIf(m.Target.Value == nil && m.Target.AverageValue == nil,
		path.Child("target", "averageValue"), "must set either a target value or averageValue")...)
}

func validateExternalMetric(m *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := validateMetricName(&m.Metric, path)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	value, average := m.Target.Value, m.Target.AverageValue
	errs = append(errs, field.RequiredIf(value == nil && average == nil, path.Child("target", "averageValue"),
		"must set either a target value for metric or a per-pod target")...)
	return append(errs, field.ForbiddenIf(value != nil && average != nil, path.Child("target", "value"),
		"may not set both a target value for metric and a per-pod target")...)
}

func validatePodsMetric(m *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := validateMetricName(&m.Metric, path)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	return append(errs, field.RequiredIf(m.Target.AverageValue == nil, path.Child("target", "averageValue"),
		"must specify a positive target averageValue")...)
}

const noResourceName = "must specify a resource name"

func validateResourceMetric(m *autoscalingv2.ResourceMetricSource, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, field.RequiredIf(m.Name == "", path.Child("name"), noResourceName)...)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	return append(errs, validateUtilizationOrValue(&m.Target, path.Child("target"))...)
}

// validateContainerResourceMetric also validates the name of the resource. validateResourceMetric accepts any name
// that is not empty, as kube-apiserver does.
func validateContainerResourceMetric(
	m *autoscalingv2.ContainerResourceMetricSource, path *field.Path,
) (errs field.ErrorList) {
	if at := path.Child("name"); m.Name == "" {
		errs = append(errs, field.Required(at, noResourceName))
	} else {
		errs = append(errs, core.ValidateContainerResourceName(string(m.Name), at)...)
	}
	errs = append(errs, field.RequiredAnd(path.Child("container"), m.Container, "must specify a container", field.DNSLabel)...)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	return append(errs, validateUtilizationOrValue(&m.Target, path.Child("target"))...)
}

// validateMetricName requires a name that can be part of a path: the controller asks the metrics API for it by a
// URL.
func validateMetricName(m *autoscalingv2.MetricIdentifier, path *field.Path) field.ErrorList {
	return field.RequiredAnd(path.Child("metric", "name"), m.Name, "must specify a metric name", field.PathSegment)
}

// validateUtilizationOrValue validates that the target of a resource has one of the two.
func validateUtilizationOrValue(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	return field.Join(
		field.RequiredIf(t.AverageUtilization == nil && t.AverageValue == nil, path.Child("averageUtilization"),
			"must set either a target raw value or a target utilization"),
		field.ForbiddenIf(t.AverageUtilization != nil && t.AverageValue != nil, path.Child("averageValue"),
			"may not set both a target raw value and a target utilization"))
}

// validateTarget validates the fields of a target without regard to its type. It does not check that the field
// that the type names is set: the rule of each source says which fields are required.
func validateTarget(t *autoscalingv2.MetricTarget, path *field.Path) (errs field.ErrorList) {
	at := path.Child("type")
	errs = append(errs, field.RequiredIf(t.Type == "", at, "must specify a metric target type")...)
	types := []autoscalingv2.MetricTargetType{
		autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType}
	errs = append(errs, field.InvalidIf(!slices.Contains(types, t.Type), at, t.Type,
		"must be either Utilization, Value, or AverageValue")...)
	positive := func(name string, q *resource.Quantity) {
		errs = append(errs, field.InvalidIf(q != nil && q.Sign() != 1, path.Child(name), q, "must be positive")...)
	}
	positive("value", t.Value)
	positive("averageValue", t.AverageValue)
	return append(errs, field.AtLeast(path.Child("averageUtilization"), t.AverageUtilization, 1,
		"must be greater than 0")...)
}

// validateScalingRules validates the rules for one direction. Defaults set missing policies in v2, but not in the
// annotation of v1; an empty list of policies is an error in both.
func validateScalingRules(r *autoscalingv2.HPAScalingRules, path *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	if n, at := r.StabilizationWindowSeconds, path.Child("stabilizationWindowSeconds"); n != nil {
		errs = append(errs, field.InvalidIf(*n < 0, at, *n, "must be greater than or equal to zero")...)
		errs = append(errs, validateMaximum(*n, maxStabilizationWindow, at)...)
	}
	errs = append(errs, field.OptionalOneOf(path.Child("selectPolicy"), r.SelectPolicy, autoscalingv2.DisabledPolicySelect,
		autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	at := path.Child("policies")
	errs = append(errs, field.RequiredIf(len(r.Policies) == 0, at, "must specify at least one Policy")...)
	errs = append(errs, field.Each(at, r.Policies, validateScalingPolicy)...)
	return append(errs, field.Optional(path.Child("tolerance"), r.Tolerance, core.ValidateNonNegativeQuantity)...)
}

func validateScalingPolicy(p *autoscalingv2.HPAScalingPolicy, path *field.Path) (errs field.ErrorList) {
	errs = field.OneOf(path.Child("type"), p.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
	errs = append(errs, field.InvalidIf(p.Value <= 0, path.Child("value"), p.Value, "must be greater than zero")...)
	at := path.Child("periodSeconds")
	errs = append(errs, field.InvalidIf(p.PeriodSeconds <= 0, at, p.PeriodSeconds, "must be greater than zero")...)
	return append(errs, validateMaximum(p.PeriodSeconds, maxPolicyPeriod, at)...)
}

func validateMaximum(n, most int32, path *field.Path) field.ErrorList {
	if n > most {
		return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("must be less than or equal to %d", most))}
	}
	return nil
}
