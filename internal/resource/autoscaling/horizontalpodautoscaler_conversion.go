package autoscaling

import (
	"cmp"
	"encoding/json"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Version v1 has only a target CPU utilization. Annotations contain the other fields of v2.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
)

// toV2 converts from v1. It ignores annotations that it cannot parse. It sets no defaults of a behavior: where rules in
// the annotation are incomplete, validation refuses them.
func toV2(in *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	read := func(annotation string, to any) bool {
		text, there := in.Annotations[annotation]
		return there && json.Unmarshal([]byte(text), to) == nil
	}
	var metrics []autoscalingv1.MetricSpec
	if read(metricsAnnotation, &metrics) {
		for _, m := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricToV2(m))
		}
	}
	// The CPU target comes after all other metrics, wherever it was in v2: a write in v1 may change the order.
	if n := in.Spec.TargetCPUUtilizationPercentage; n != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*n))
	}
	var behavior annotationBehavior
	if read(behaviorAnnotation, &behavior) && behavior != (annotationBehavior{}) {
		out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: behavior.ScaleUp.rules(),
			ScaleDown: behavior.ScaleDown.rules()}
	}
	if n := in.Status.CurrentCPUUtilizationPercentage; n != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: n},
			},
		}}
	}
	// The annotation has the CPU metric too, so its list replaces the one from the percentage.
	var current []autoscalingv1.MetricStatus
	if read(currentMetricsAnnotation, &current) {
		out.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(current))
		for i, m := range current {
			out.Status.CurrentMetrics[i] = statusToV2(m)
			dropShownZero(&out.Status.CurrentMetrics[i], in.Status.CurrentCPUUtilizationPercentage)
		}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if read(conditionsAnnotation, &conditions) {
		for _, c := range conditions {
			out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			})
		}
	}
	out.Annotations = withoutConversionAnnotations(in.Annotations)
	defaultMetrics(&out.Spec)
	return out, nil
}

// dropShownZero removes the average value 0 from the metric that percent stands for: the annotation of v1 has one although
// there is none.
func dropShownZero(m *autoscalingv2.MetricStatus, percent *int32) {
	if r := m.Resource; percent != nil && r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil &&
		*r.Current.AverageUtilization == *percent && r.Current.AverageValue != nil && r.Current.AverageValue.IsZero() {
		r.Current.AverageValue = nil
	}
}

// fromV2 converts to v1. The fields that v1 does not have become annotations.
func fromV2(in *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	out.Annotations = withoutConversionAnnotations(in.Annotations)
	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		m := &in.Spec.Metrics[i]
		// v1 has one field for the CPU utilization. A second target for it cannot be shown.
		if percent := cpuTarget(m); percent != nil {
			if out.Spec.TargetCPUUtilizationPercentage == nil {
				out.Spec.TargetCPUUtilizationPercentage = percent
			}
			continue
		}
		others = append(others, metricFromV2(m))
	}
	var errs []error
	if len(others) > 0 {
		errs = append(errs, annotate(out, metricsAnnotation, others))
	}
	if b := in.Spec.Behavior; b != nil {
		errs = append(errs,
			annotate(out, behaviorAnnotation,
				annotationBehavior{ScaleUp: toAnnotationRules(b.ScaleUp), ScaleDown: toAnnotationRules(b.ScaleDown)}))
	}
	if len(in.Status.CurrentMetrics) > 0 {
		current := make([]autoscalingv1.MetricStatus, len(in.Status.CurrentMetrics))
		for i := range current {
			m := &in.Status.CurrentMetrics[i]
			if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU {
				out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
			}
			current[i] = statusFromV2(m)
		}
		errs = append(errs, annotate(out, currentMetricsAnnotation, current))
	}
	if len(in.Status.Conditions) > 0 {
		errs = append(errs, annotate(out, conditionsAnnotation, conditionsFromV2(in.Status.Conditions)))
	}
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// annotate sets an annotation to the JSON of a value.
func annotate(out *autoscalingv1.HorizontalPodAutoscaler, annotation string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotation] = string(text)
	return nil
}

func conditionsFromV2(
	in []autoscalingv2.HorizontalPodAutoscalerCondition,
) []autoscalingv1.HorizontalPodAutoscalerCondition {
	var out []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range in {
		out = append(out, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}

// withoutConversionAnnotations returns a copy without the annotations that stand for fields, because v2 has the
// fields and fromV2 writes the annotations anew. It returns nil if no annotation is left. The argument is shared
// with the input of a conversion and does not change.
func withoutConversionAnnotations(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, name := range []string{metricsAnnotation, currentMetricsAnnotation, conditionsAnnotation, behaviorAnnotation} {
		delete(out, name)
	}
	if len(out) == 0 && len(annotations) > 0 {
		return nil
	}
	return out
}

// cpuTarget returns the target in percent that v1 has a field for. It returns nil for all other metrics, among
// them a target for CPU with an average value.
func cpuTarget(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

// annotationBehavior is a behavior as JSON in the annotation, with Go's field names.
// kube-apiserver writes its internal type, which has no JSON names: {"ScaleUp":{"SelectPolicy":"Max",...},...}.
type annotationBehavior struct{ ScaleUp, ScaleDown *annotationRules }

type annotationRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []annotationPolicy
	Tolerance                  *resource.Quantity
}

type annotationPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func toAnnotationRules(r *autoscalingv2.HPAScalingRules) *annotationRules {
	if r == nil {
		return nil
	}
	out := &annotationRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy,
		Tolerance: r.Tolerance}
	if r.Policies != nil {
		out.Policies = make([]annotationPolicy, len(r.Policies))
		for i, p := range r.Policies {
			out.Policies[i] = annotationPolicy(p)
		}
	}
	return out
}

func (r *annotationRules) rules() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds,
		SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	if r.Policies != nil {
		out.Policies = make([]autoscalingv2.HPAScalingPolicy, len(r.Policies))
		for i, p := range r.Policies {
			out.Policies[i] = autoscalingv2.HPAScalingPolicy(p)
		}
	}
	return out
}
