package scheduling

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
	schedulingv1alpha2 "github.com/keelson-dev/keelson/internal/resource/scheduling/v1alpha2"
)

func podGroup(gates features.Gates) *registry.Kind {
	g := newGroupGates(gates)
	return &registry.Kind{
		Names: registry.Names{
			Group: schedulingv1alpha2.GroupName, Package: "scheduling", Resource: "podgroups", Name: "PodGroup",
			Namespaced: true,
		},
		Versions: []registry.Version{declare.Version("v1alpha2", func(p *schedulingv1alpha2.PodGroup) {
			declare.Pointer(&p.Spec.DisruptionMode, schedulingv1alpha2.DisruptionModePod)
		})},
		Storage: registry.Storage{
			Version: "v1alpha2", Path: "podgroups",
			DefaultOnRead: [][]int32{{2, 5}}, // spec.disruptionMode is dropped if its gate is off
		},
		Requests:     registry.Requests{UnconditionalUpdate: true},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*schedulingv1alpha2.PodGroup]{
			StatusKeepsMeta: true,
			PrepareCreate: func(p *schedulingv1alpha2.PodGroup) {
				g.dropDisabled(fieldsOfGroup(&p.Spec), nil)
			},
			PrepareUpdate: func(p, old *schedulingv1alpha2.PodGroup) {
				g.dropDisabled(fieldsOfGroup(&p.Spec), fieldsOfGroup(&old.Spec))
			},
			PrepareStatusUpdate: func(p, old *schedulingv1alpha2.PodGroup) {
				if !g.claims && len(old.Spec.ResourceClaims) == 0 {
					p.Status.ResourceClaimStatuses = nil
				}
			},
			ValidateCreate: func(p *schedulingv1alpha2.PodGroup) field.ErrorList {
				v := newValidator()
				path := field.NewPath("spec")
				v.templateReference(p.Spec.PodGroupTemplateRef, path.Child("podGroupTemplateRef").K8s())
				v.group(fieldsOfGroup(&p.Spec), g, path.K8s())
				return v.errs
			},
			ValidateUpdate: func(p, old *schedulingv1alpha2.PodGroup) field.ErrorList {
				return g.validateGroupUpdate(&p.Spec, &old.Spec, field.NewPath("spec"))
			},
			ValidateStatusUpdate: validateGroupStatus,
		}.Untyped(),
		Table: registry.Table[*schedulingv1alpha2.PodGroup]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Policy", "string", policyDescription),
				table.Column("Workload", "string", "Name of the referenced Workload object"),
				table.Column("Status", "string", "Status of the PodGroup"),
				table.Age,
			},
			Cells: podGroupCells,
		}.Untyped(),
	}
}

// policyDescription is the description of spec.schedulingPolicy in the schema.
const policyDescription = "SchedulingPolicy defines the scheduling policy for this instance of the PodGroup. Controllers " +
	"are expected to fill this field by copying it from a PodGroupTemplate. This field is immutable."

func podGroupCells(p *schedulingv1alpha2.PodGroup) []any {
	policy, workload, status := "Basic", table.None, "Pending"
	if p.Spec.SchedulingPolicy.Gang != nil {
		policy = "Gang"
	}
	if r := p.Spec.PodGroupTemplateRef; r != nil && r.Workload != nil {
		workload = r.Workload.WorkloadName
	}
	disrupted := ""
	for _, c := range p.Status.Conditions {
		switch c.Type {
		case schedulingv1alpha2.PodGroupScheduled:
			status = "Unschedulable"
			if c.Status == metav1.ConditionTrue {
				status = "Scheduled"
			}
		case schedulingv1alpha2.DisruptionTarget:
			disrupted = c.Reason
		}
	}
	if disrupted != "" {
		status = disrupted
	}
	return []any{p.Name, policy, workload, status, table.AgeOf(p.CreationTimestamp)}
}

// validateGroupUpdate allows no change of a group. A field of a gate that is off can only be removed.
func (g groupGates) validateGroupUpdate(s, old *schedulingv1alpha2.PodGroupSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name           string
		value, old     any
		gated, removed bool // by a gate that is off; the new object has no value
	}{
		{"podGroupTemplateRef", s.PodGroupTemplateRef, old.PodGroupTemplateRef, false, false},
		{"schedulingPolicy", s.SchedulingPolicy, old.SchedulingPolicy, false, false},
		{"schedulingConstraints", s.SchedulingConstraints, old.SchedulingConstraints, !g.topology,
			s.SchedulingConstraints == nil},
		{"resourceClaims", s.ResourceClaims, old.ResourceClaims, false, false},
		{"disruptionMode", s.DisruptionMode, old.DisruptionMode, !g.preemption, s.DisruptionMode == nil},
		{"priorityClassName", s.PriorityClassName, old.PriorityClassName, !g.preemption, s.PriorityClassName == ""},
		{"priority", s.Priority, old.Priority, !g.preemption, s.Priority == nil},
	} {
		switch {
		case equality.Semantic.DeepEqual(f.value, f.old) || f.gated && f.removed:
		case f.gated:
			errs = append(errs, field.Forbidden(path.Child(f.name), ""))
		default:
			errs = append(errs, declare.Unchanged(f.value, f.old, path.Child(f.name))...)
		}
	}
	return errs
}

func validateGroupStatus(p, old *schedulingv1alpha2.PodGroup) field.ErrorList {
	path := field.NewPath("status")
	errs := metav1validation.ValidateConditions(p.Status.Conditions, path.Child("conditions").K8s())
	at := path.Child("resourceClaimStatuses")
	claims := map[string]bool{}
	for _, c := range p.Spec.ResourceClaims {
		claims[c.Name] = true
	}
	for i, s := range p.Status.ResourceClaimStatuses {
		errs = append(errs, field.InvalidIf(!claims[s.Name], at.Index(i).Child("name"), s.Name,
			"must match the name of an entry in `spec.resourceClaims`")...)
	}
	if equality.Semantic.DeepEqual(p.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses) {
		return errs
	}
	v := newValidator()
	v.claimStatuses(p.Status.ResourceClaimStatuses, at.K8s())
	return append(errs, v.errs...)
}
