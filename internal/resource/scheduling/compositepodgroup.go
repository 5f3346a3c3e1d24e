package scheduling

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type compositeGroup = schedulingv1alpha3.CompositePodGroup

func compositePodGroup(gates features.Gates) *registry.Kind {
	g := newGroupGates(gates)
	return &registry.Kind{
		Names: registry.Names{
			Group: schedulingv1alpha3.GroupName, Package: "scheduling", Resource: "compositepodgroups",
			Name: "CompositePodGroup", Namespaced: true,
		},
		Versions: []registry.Version{declare.Version("v1alpha3", func(p *compositeGroup) {
			if g.preemption {
				declare.Pointer(&p.Spec.PreemptionPolicy, schedulingv1alpha3.PreemptLowerPriority)
			}
			declare.Pointer(&p.Spec.DisruptionMode,
				schedulingv1alpha3.CompositeDisruptionMode{Single: &schedulingv1alpha3.SingleCompositeDisruptionMode{}})
		})},
		Storage: registry.Storage{
			Version: "v1alpha3", Path: "compositepodgroups", DefaultOnRead: g.defaultOnRead(8),
		},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*compositeGroup]{
			StatusKeepsMeta: true,
			PrepareCreate:   g.compositeGroups.DropNew,
			PrepareUpdate:   g.compositeGroups.Drop,
			ValidateCreate: func(p *compositeGroup) field.ErrorList {
				v := validator{gates: g}
				v.compositeGroup(&p.Spec, nil, field.NewPath("spec").K8s())
				return v.Errs
			},
			ValidateUpdate: func(p, old *compositeGroup) field.ErrorList {
				v := validator{gates: g}
				v.compositeGroup(&p.Spec, &old.Spec, field.NewPath("spec").K8s())
				return v.Errs
			},
			ValidateStatusUpdate: func(p, _ *compositeGroup) field.ErrorList {
				return metav1validation.ValidateConditions(p.Status.Conditions, field.NewPath("status", "conditions").K8s())
			},
		}.Untyped(),
		Table: registry.Table[*compositeGroup]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Policy", "string", schedulingv1alpha3.CompositePodGroupSpec{}.SwaggerDoc()["schedulingPolicy"]),
				table.Column("Workload", "string", "Name of the referenced Workload object"),
				table.Age,
			},
			Cells: func(p *compositeGroup) []any {
				workload := table.None
				if r := p.Spec.WorkloadRef; r != nil {
					workload = r.WorkloadName
				}
				return []any{p.Name, policyName(p.Spec.SchedulingPolicy.Gang != nil), workload, table.AgeOf(p.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
