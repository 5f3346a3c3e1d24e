package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// replicaSet returns the kind of ReplicaSets. Unlike the other workloads they have no update strategy and no
// history: a change of the template concerns only pods that are created later.
func replicaSet(inPods core.PodGates, gates features.Gates) *registry.Kind {
	disabled := declare.DisabledOf(gates, declare.Part(features.DeploymentReplicaSetTerminatingReplicas,
		func(r *appsv1.ReplicaSet) bool { return r.Status.TerminatingReplicas != nil },
		func(r *appsv1.ReplicaSet) { r.Status.TerminatingReplicas = nil }))
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	columns := table.WithTemplate(spec["selector"],
		table.Name,
		table.Column("Desired", "integer", spec["replicas"]),
		table.Column("Current", "integer", status["replicas"]),
		table.Column("Ready", "integer", status["readyReplicas"]),
		table.Age)
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "apps", Resource: "replicasets", Name: "ReplicaSet", ShortNames: []string{"rs"},
			Categories: []string{"all"}, Namespaced: true,
		},
		RunBy: []string{registry.ControllerManager, registry.Scheduler},
		Versions: []registry.Version{declare.Version("v1", func(r *appsv1.ReplicaSet) {
			declare.Pointer(&r.Spec.Replicas, 1)
			core.DefaultPodTemplate(&r.Spec.Template)
		})},
		Storage:  registry.Storage{Version: "v1", Path: "replicasets"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Subresources: []registry.Subresource{
			declare.Scale(func(r *appsv1.ReplicaSet) (int32, int32, string) {
				return replicas(r.Spec.Replicas), r.Status.Replicas, table.Selector(r.Spec.Selector)
			}, func(r *appsv1.ReplicaSet, n int32) { r.Spec.Replicas = &n }),
			declare.Status(),
		},
		Strategy: registry.Strategy[*appsv1.ReplicaSet]{
			Generation:          true,
			ValidateCreate:      func(r *appsv1.ReplicaSet) field.ErrorList { return validateReplicaSet(r, nil, &inPods) },
			PrepareStatusUpdate: disabled.Drop,
			PrepareCreate:       func(r *appsv1.ReplicaSet) { inPods.DropNew(&r.Spec.Template) },
			PrepareUpdate: func(r, old *appsv1.ReplicaSet) {
				inPods.Drop(&r.Spec.Template, &old.Spec.Template)
			},
			ValidateStatusUpdate: validateReplicaSetStatus,
			ValidateUpdate: func(r, old *appsv1.ReplicaSet) field.ErrorList {
				return append(validateReplicaSet(r, old, &inPods),
					declare.Immutable(r.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
			},
			Warn: func(r, old *appsv1.ReplicaSet) []string {
				if old == nil {
					return append(declare.PodNameWarnings(r.Name), templateWarnings(&r.Spec.Template)...)
				}
				return changedTemplateWarnings(r, old, &r.Spec.Template)
			},
		}.Untyped(),
		Table: registry.Table[*appsv1.ReplicaSet]{
			Columns: columns,
			Cells: func(r *appsv1.ReplicaSet) []any {
				names, images := core.ContainerNames(&r.Spec.Template.Spec)
				return []any{
					r.Name, int64(replicas(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
					table.AgeOf(r.CreationTimestamp), names, images, metav1.FormatLabelSelector(r.Spec.Selector),
				}
			},
		}.Untyped(),
	}
}
