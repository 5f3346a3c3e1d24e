package scheduling

import (
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
	schedulingv1alpha2 "github.com/keelson-dev/keelson/internal/resource/scheduling/v1alpha2"
)

func workload(gates features.Gates) *registry.Kind {
	g := newGroupGates(gates)
	return &registry.Kind{
		Names: registry.Names{
			Group: schedulingv1alpha2.GroupName, Package: "scheduling", Resource: "workloads", Name: "Workload",
			Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[schedulingv1alpha2.Workload]("v1alpha2", nil)},
		Storage:  registry.Storage{Version: "v1alpha2", Path: "workloads"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Strategy: registry.Strategy[*schedulingv1alpha2.Workload]{
			PrepareCreate: func(w *schedulingv1alpha2.Workload) {
				g.dropFromTemplates(w.Spec.PodGroupTemplates, nil)
			},
			PrepareUpdate: func(w, old *schedulingv1alpha2.Workload) {
				g.dropFromTemplates(w.Spec.PodGroupTemplates, old.Spec.PodGroupTemplates)
			},
			ValidateCreate: func(w *schedulingv1alpha2.Workload) field.ErrorList {
				v := newValidator()
				v.workload(&w.Spec, g, field.NewPath("spec").K8s())
				return v.errs
			},
			ValidateUpdate: func(w, old *schedulingv1alpha2.Workload) field.ErrorList {
				path := field.NewPath("spec")
				at := path.Child("podGroupTemplates")
				errs := declare.Unchanged(w.Spec.ControllerRef, old.Spec.ControllerRef, path.Child("controllerRef"))
				errs = append(errs, declare.Unchanged(w.Spec.PodGroupTemplates, old.Spec.PodGroupTemplates, at)...)
				return append(errs, field.RequiredIf(len(w.Spec.PodGroupTemplates) == 0 && len(old.Spec.PodGroupTemplates) > 0,
					at, "")...)
			},
		}.Untyped(),
		Table: table.NameAndAge(),
	}
}

// dropFromTemplates drops what gates do not allow from each template, compared with the template at its place before.
func (g groupGates) dropFromTemplates(templates, old []schedulingv1alpha2.PodGroupTemplate) {
	for i := range templates {
		var before *groupFields
		if i < len(old) {
			before = fieldsOfTemplate(&old[i])
		}
		g.dropDisabled(fieldsOfTemplate(&templates[i]), before)
	}
}
