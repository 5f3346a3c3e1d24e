package autoscaling

import (
	"fmt"
	"slices"
	"strconv"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// horizontalPodAutoscaler returns the kind of HorizontalPodAutoscalers. They are stored as v2, because v1 has only
// some of the fields. Validation and the table see v2, in whatever version a client writes.
func horizontalPodAutoscaler(gates features.Gates) *registry.Kind {
	toZero := gates.Enabled(features.HPAScaleToZero)
	disabled := declare.DisabledOf(gates, declare.Part(features.HPAConfigurableTolerance, usesTolerance, dropTolerance))
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(),
		autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	v1 := declare.Version[autoscalingv1.HorizontalPodAutoscaler]("v1", defaultV1)
	v1.ToStorage, v1.FromStorage = registry.Converter(toV2), registry.Converter(fromV2)
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "autoscaling", Resource: "horizontalpodautoscalers",
			Name: "HorizontalPodAutoscaler", ShortNames: []string{"hpa"}, Categories: []string{"all"},
			Namespaced: true,
		},
		Versions: []registry.Version{
			declare.Version[autoscalingv2.HorizontalPodAutoscaler]("v2", defaultV2),
			v1,
		},
		Storage:      registry.Storage{Version: "v2", Path: "horizontalpodautoscalers"},
		Requests:     registry.Requests{UnconditionalUpdate: true},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*autoscalingv2.HorizontalPodAutoscaler]{
			Generation:    gates.Enabled(features.HPAGeneration),
			PrepareCreate: disabled.DropNew,
			PrepareUpdate: disabled.Drop,
			ValidateCreate: func(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
				return validateAutoscaler(h, toZero)
			},
			ValidateUpdate: func(h, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
				return validateAutoscalerUpdate(h, old, toZero)
			},
			ValidateStatusUpdate: validateAutoscalerStatus,
		}.Untyped(),
		Table: registry.Table[*autoscalingv2.HorizontalPodAutoscaler]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Reference", "string", spec["scaleTargetRef"]),
				table.Column("Targets", "string", spec["metrics"]),
				table.Column("MinPods", "string", spec["minReplicas"]),
				table.Column("MaxPods", "string", spec["maxReplicas"]),
				table.Column("Replicas", "string", status["currentReplicas"]),
				table.Age,
			},
			Cells: func(h *autoscalingv2.HorizontalPodAutoscaler) []any {
				least := table.Unset
				if n := h.Spec.MinReplicas; n != nil {
					least = strconv.Itoa(int(*n))
				}
				return []any{
					h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name,
					formatMetrics(h.Spec.Metrics, h.Status.CurrentMetrics), least,
					int64(h.Spec.MaxReplicas), int64(h.Status.CurrentReplicas), table.AgeOf(h.CreationTimestamp),
				}
			},
		}.Untyped(),
	}
}

// scalingRules returns the rules of an autoscaler that are set.
func scalingRules(h *autoscalingv2.HorizontalPodAutoscaler) []*autoscalingv2.HPAScalingRules {
	if h.Spec.Behavior == nil {
		return nil
	}
	return slices.DeleteFunc(
		[]*autoscalingv2.HPAScalingRules{h.Spec.Behavior.ScaleUp, h.Spec.Behavior.ScaleDown},
		func(r *autoscalingv2.HPAScalingRules) bool { return r == nil })
}

func usesTolerance(h *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(scalingRules(h), func(r *autoscalingv2.HPAScalingRules) bool { return r.Tolerance != nil })
}

func dropTolerance(h *autoscalingv2.HorizontalPodAutoscaler) {
	for _, r := range scalingRules(h) {
		r.Tolerance = nil
	}
}

// defaultUtilization is the target CPU utilization, in percent, of an autoscaler without
// metrics.
const defaultUtilization = 80

// defaultV1 sets the defaults of both versions: the metrics that v2 has by default are a field of v1 too, and the
// annotations that stand for other fields of v2 get the text that they have when the object is read.
func defaultV1(h *autoscalingv1.HorizontalPodAutoscaler) {
	declare.Pointer(&h.Spec.MinReplicas, 1)
	if stored, err := toV2(h); err == nil {
		if shown, err := fromV2(stored); err == nil {
			shown.TypeMeta = h.TypeMeta
			*h = *shown
		}
	}
}

func defaultV2(h *autoscalingv2.HorizontalPodAutoscaler) {
	declare.Pointer(&h.Spec.MinReplicas, 1)
	defaultMetrics(&h.Spec)
	if b := h.Spec.Behavior; b != nil {
		b.ScaleUp, b.ScaleDown = withDefaults(scaleUp(), b.ScaleUp), withDefaults(scaleDown(), b.ScaleDown)
	}
}

func defaultMetrics(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
	if len(s.Metrics) == 0 {
		s.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultUtilization)}
	}
}

func cpuMetric(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// scaleUp returns the default rules: 4 pods or twice the pods within 15 seconds, whichever is more. The
// documentation of the field in k8s.io/api says 60 seconds, which is not the default.
func scaleUp() *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{
		StabilizationWindowSeconds: new(int32(0)),
		SelectPolicy:               new(autoscalingv2.MaxChangePolicySelect),
		Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		},
	}
}

// scaleDown returns the default rules without a stabilization window, whose default is a
// setting of the controller.
// All pods above minReplicas may be removed within 15 seconds.
func scaleDown() *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{
		SelectPolicy: new(autoscalingv2.MaxChangePolicySelect),
		Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		},
	}
}

// withDefaults returns rules with missing fields set to those of defaults.
// It changes defaults, which must be new for each call. Policies are not merged: a list that is set replaces the
// whole default list. tolerance has no default here, because it is a setting of the controller (KEP-4951).
func withDefaults(defaults, rules *autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
	if rules == nil {
		return defaults
	}
	if rules.SelectPolicy != nil {
		defaults.SelectPolicy = rules.SelectPolicy
	}
	if rules.StabilizationWindowSeconds != nil {
		defaults.StabilizationWindowSeconds = rules.StabilizationWindowSeconds
	}
	if rules.Policies != nil {
		defaults.Policies = rules.Policies
	}
	defaults.Tolerance = rules.Tolerance
	return defaults
}

// formatMetrics returns the first metrics as "current/target".
// The controller writes the statuses in the order of the specs, so they are matched by index. Without a matching
// status, the current value is unknown.
func formatMetrics(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return table.None
	}
	words := make([]string, len(specs))
	for i := range specs {
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		words[i] = formatMetric(&specs[i], &status)
	}
	return table.FirstOf(words, 2, ", ")
}

func formatMetric(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	current := currentOf(spec.Type, status)
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return formatValue(&spec.External.Target, current)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		return formatValue(&spec.Object.Target, current)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		return currentAverage(current) + "/" + spec.Pods.Target.AverageValue.String()
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return formatResource(spec.Resource.Name, &spec.Resource.Target, current)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return formatResource(spec.ContainerResource.Name, &spec.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

// currentOf returns the current value of a metric of a type, nil if the status has none.
func currentOf(t autoscalingv2.MetricSourceType, s *autoscalingv2.MetricStatus) *autoscalingv2.MetricValueStatus {
	switch {
	case t == autoscalingv2.ExternalMetricSourceType && s.External != nil:
		return &s.External.Current
	case t == autoscalingv2.ObjectMetricSourceType && s.Object != nil:
		return &s.Object.Current
	case t == autoscalingv2.PodsMetricSourceType && s.Pods != nil:
		return &s.Pods.Current
	case t == autoscalingv2.ResourceMetricSourceType && s.Resource != nil:
		return &s.Resource.Current
	case t == autoscalingv2.ContainerResourceMetricSourceType && s.ContainerResource != nil:
		return &s.ContainerResource.Current
	}
	return nil
}

// formatValue returns the current value of a metric and its target; current is nil if the status has none. Like
// kube-apiserver, it shows a value that is missing as <nil>, but a missing average as unknown.
func formatValue(target *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		if current != nil && current.AverageValue == nil {
			current = nil
		}
		return currentAverage(current) + "/" + target.AverageValue.String() + " (avg)"
	}
	if current == nil {
		return table.Unknown + "/" + target.Value.String()
	}
	return current.Value.String() + "/" + target.Value.String()
}

func currentAverage(current *autoscalingv2.MetricValueStatus) string {
	if current == nil {
		return table.Unknown
	}
	return current.AverageValue.String()
}

// formatResource returns a metric such as "cpu: 12%/80%", or "memory: 100Mi/200Mi" for a target with an average
// value.
func formatResource(
	name corev1.ResourceName, target *autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus,
) string {
	if target.AverageValue != nil {
		return fmt.Sprintf("%s: %s/%s", name, currentAverage(current), target.AverageValue.String())
	}
	var used *int32
	if current != nil {
		used = current.AverageUtilization
	}
	percent := func(n *int32, none string) string {
		if n == nil {
			return none
		}
		return fmt.Sprintf("%d%%", *n)
	}
	return fmt.Sprintf("%s: %s/%s", name, percent(used, table.Unknown),
		percent(target.AverageUtilization, "<auto>"))
}
