package scheduling

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func workload(gates features.Gates) *registry.Kind {
	g := newGroupGates(gates)
	return &registry.Kind{
		Names: registry.Names{
			Group: schedulingv1beta1.GroupName, Package: "scheduling", Resource: "workloads", Name: "Workload",
			Namespaced: true,
		},
		Versions: []registry.Version{
			declare.Version[schedulingv1beta1.Workload]("v1beta1", nil),
			declare.SameMessage[schedulingv1alpha3.Workload, schedulingv1beta1.Workload]("v1alpha3", nil),
		},
		Storage: registry.Storage{Version: "v1beta1", Path: "workloads"},
		Strategy: registry.Strategy[*schedulingv1beta1.Workload]{
			PrepareCreate: func(w *schedulingv1beta1.Workload) {
				g.dropFromWorkload(&w.Spec, &schedulingv1beta1.WorkloadSpec{})
			},
			PrepareUpdate: func(w, old *schedulingv1beta1.Workload) { g.dropFromWorkload(&w.Spec, &old.Spec) },
			ValidateCreate: func(w *schedulingv1beta1.Workload) field.ErrorList {
				return g.validateWorkload(&w.Spec, nil)
			},
			ValidateUpdate: func(w, old *schedulingv1beta1.Workload) field.ErrorList {
				return g.validateWorkload(&w.Spec, &old.Spec)
			},
		}.Untyped(),
		Table: table.NameAndAge(),
	}
}

// validateWorkload validates a spec; old is nil for a new one.
func (g *groupGates) validateWorkload(s, old *schedulingv1beta1.WorkloadSpec) field.ErrorList {
	errs := validateHierarchy(s, field.NewPath("spec"))
	v := validator{gates: g}
	v.workload(s, old, field.NewPath("spec").K8s())
	return append(errs, v.Errs...)
}
