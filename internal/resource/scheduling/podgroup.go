package scheduling

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type podGroup = schedulingv1beta1.PodGroup

func podGroupKind(gates features.Gates) *registry.Kind {
	g := newGroupGates(gates)
	setDefaults := func(p *podGroup) {
		if g.preemption {
			declare.Pointer(&p.Spec.PreemptionPolicy, schedulingv1beta1.PreemptLowerPriority)
		}
		declare.Pointer(&p.Spec.DisruptionMode,
			schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}})
	}
	return &registry.Kind{
		Names: registry.Names{
			Group: schedulingv1beta1.GroupName, Package: "scheduling", Resource: "podgroups", Name: "PodGroup",
			Namespaced: true,
		},
		Versions: []registry.Version{
			declare.Version("v1beta1", setDefaults),
			declare.SameMessage[schedulingv1alpha3.PodGroup]("v1alpha3", setDefaults),
		},
		Storage: registry.Storage{Version: "v1beta1", Path: "podgroups", DefaultOnRead: g.defaultOnRead(9)},
		Finalizers: []registry.Finalizer{
			{
				Name:    "scheduling.k8s.io/podgroup-protection",
				Remover: "the pod group protection controller of kube-controller-manager", When: "when no pod belongs to the group",
			},
		},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*podGroup]{
			StatusKeepsMeta:     true,
			PrepareCreate:       g.groups.DropNew,
			PrepareUpdate:       g.groups.Drop,
			PrepareStatusUpdate: g.statuses.Drop,
			ValidateCreate: func(p *podGroup) field.ErrorList {
				errs := field.RequiredIf(p.Spec.ParentCompositePodGroupName != nil && p.Spec.WorkloadRef == nil,
					field.NewPath("spec", "workloadRef"), "must be set when parentCompositePodGroupName is set")
				v := validator{gates: g}
				v.podGroup(&p.Spec, nil, field.NewPath("spec").K8s())
				return append(errs, v.Errs...)
			},
			ValidateUpdate: func(p, old *podGroup) field.ErrorList {
				v := validator{gates: g}
				v.podGroup(&p.Spec, &old.Spec, field.NewPath("spec").K8s())
				return v.Errs
			},
			ValidateStatusUpdate: g.validateStatus,
		}.Untyped(),
		Table: registry.Table[*podGroup]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Policy", "string", schedulingv1beta1.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"]),
				table.Column("Workload", "string", "Name of the referenced Workload object"),
				table.Column("Status", "string", "Status of the PodGroup"),
				table.Age,
			},
			Cells: podGroupCells,
		}.Untyped(),
	}
}

// defaultOnRead returns the path of the field preemptionPolicy, which has that number in the spec, if its gate is on: an
// object that was stored while it was off has no value.
// number is 9 in PodGroup and 8 in CompositePodGroup.
func (g *groupGates) defaultOnRead(number int32) [][]int32 {
	if !g.preemption {
		return nil
	}
	return [][]int32{{2, number}}
}

// podGroupCells returns the cells of a row. A group about to be disrupted shows the reason, such as
// PreemptionByScheduler, in place of its state. Scheduled means that the group was scheduled once; it stays so
// when pods are evicted.
func podGroupCells(p *podGroup) []any {
	workload, status := table.None, "Pending"
	if r := p.Spec.WorkloadRef; r != nil {
		workload = r.WorkloadName
	}
	disrupted := ""
	for i := range p.Status.Conditions {
		switch c := &p.Status.Conditions[i]; c.Type {
		case schedulingv1beta1.PodGroupInitiallyScheduled:
			status = "Unschedulable"
			if c.Status == metav1.ConditionTrue {
				status = "Scheduled"
			}
		case schedulingv1beta1.DisruptionTarget:
			disrupted = c.Reason
		}
	}
	if disrupted != "" {
		status = disrupted
	}
	return []any{
		p.Name, policyName(p.Spec.SchedulingPolicy.Gang != nil), workload, status, table.AgeOf(p.CreationTimestamp),
	}
}

// policyName returns the name of a policy in tables.
func policyName(gang bool) string {
	if gang {
		return "Gang"
	}
	return "Basic"
}

func (g *groupGates) validateStatus(p, old *podGroup) field.ErrorList {
	path := field.NewPath("status")
	errs := metav1validation.ValidateConditions(p.Status.Conditions, path.Child("conditions").K8s())
	at := path.Child("resourceClaimStatuses")
	for i, s := range p.Status.ResourceClaimStatuses {
		claim := find(p.Spec.ResourceClaims,
			func(c *schedulingv1beta1.PodGroupResourceClaim) bool { return c.Name == s.Name })
		errs = append(errs, field.InvalidIf(claim == nil, at.Index(i).Child("name"), s.Name,
			"must match the name of an entry in `spec.resourceClaims`")...)
	}
	v := validator{gates: g}
	v.claimStatuses(p.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses, at.K8s())
	return append(errs, v.Errs...)
}
