package scheduling

import (
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// groupGates are the feature gates of fields of pod groups, and the parts of objects whose gates are off.
type groupGates struct {
	topology   bool // schedulingConstraints
	preemption bool // preemptionPolicy
	composite  bool // parentCompositePodGroupName and compositePodGroupTemplates

	groups             declare.Disabled[*podGroup]
	compositeGroups    declare.Disabled[*compositeGroup]
	templates          declare.Disabled[*template]
	compositeTemplates declare.Disabled[*compositeTemplate]
	workloads          declare.Disabled[*schedulingv1beta1.WorkloadSpec]
	statuses           declare.Disabled[*podGroup]
}

func newGroupGates(gates features.Gates) *groupGates {
	hasClaims := func(p *podGroup) bool { return len(p.Spec.ResourceClaims) > 0 }
	return &groupGates{
		topology:   gates.Enabled(features.TopologyAwareWorkloadScheduling),
		preemption: gates.Enabled(features.PodGroupPreemptionPolicy),
		composite:  gates.Enabled(features.CompositePodGroup),
		groups: declare.DisabledOf(gates,
			declare.Part(features.TopologyAwareWorkloadScheduling,
				func(p *podGroup) bool { return p.Spec.SchedulingConstraints != nil },
				func(p *podGroup) { p.Spec.SchedulingConstraints = nil }),
			declare.Part(features.DRAWorkloadResourceClaims, hasClaims, func(p *podGroup) { p.Spec.ResourceClaims = nil }),
			declare.Part(features.PodGroupPreemptionPolicy,
				func(p *podGroup) bool { return p.Spec.PreemptionPolicy != nil },
				func(p *podGroup) { p.Spec.PreemptionPolicy = nil }),
			declare.Part(features.CompositePodGroup,
				func(p *podGroup) bool { return p.Spec.ParentCompositePodGroupName != nil },
				func(p *podGroup) { p.Spec.ParentCompositePodGroupName = nil })),
		compositeGroups: declare.DisabledOf(gates, declare.Part(features.PodGroupPreemptionPolicy,
			func(p *compositeGroup) bool { return p.Spec.PreemptionPolicy != nil },
			func(p *compositeGroup) { p.Spec.PreemptionPolicy = nil })),
		templates: declare.DisabledOf(gates,
			declare.Part(features.TopologyAwareWorkloadScheduling,
				func(t *template) bool { return t.SchedulingConstraints != nil },
				func(t *template) { t.SchedulingConstraints = nil }),
			declare.Part(features.DRAWorkloadResourceClaims,
				func(t *template) bool { return len(t.ResourceClaims) > 0 },
				func(t *template) { t.ResourceClaims = nil }),
			declare.Part(features.PodGroupPreemptionPolicy,
				func(t *template) bool { return t.PreemptionPolicy != nil },
				func(t *template) { t.PreemptionPolicy = nil })),
		compositeTemplates: declare.DisabledOf(gates,
			declare.Part(features.PodGroupPreemptionPolicy,
				func(t *compositeTemplate) bool { return t.PreemptionPolicy != nil },
				func(t *compositeTemplate) { t.PreemptionPolicy = nil }),
			declare.Part(features.CompositePodGroup,
				func(t *compositeTemplate) bool { return len(t.CompositePodGroupTemplates) > 0 },
				func(t *compositeTemplate) { t.CompositePodGroupTemplates = nil })),
		workloads: declare.DisabledOf(gates, declare.Part(features.CompositePodGroup,
			func(s *schedulingv1beta1.WorkloadSpec) bool { return len(s.CompositePodGroupTemplates) > 0 },
			func(s *schedulingv1beta1.WorkloadSpec) { s.CompositePodGroupTemplates = nil })),
		// Whether a status may have claims depends on the spec, which an update of the status does not change.
		statuses: declare.DisabledOf(gates, declare.Part(features.DRAWorkloadResourceClaims, hasClaims,
			func(p *podGroup) { p.Status.ResourceClaimStatuses = nil })),
	}
}

// dropFromWorkload removes what gates do not allow from a workload, unless the old one has it.
func (g *groupGates) dropFromWorkload(s, old *schedulingv1beta1.WorkloadSpec) {
	dropTemplates(g.templates, s.PodGroupTemplates, old.PodGroupTemplates)
	g.workloads.Drop(s, old)
	g.dropFromComposites(s.CompositePodGroupTemplates, old.CompositePodGroupTemplates)
}

// dropFromComposites compares each template with the old one of its name.
// The pod group templates in them are compared by their place; see dropTemplates.
func (g *groupGates) dropFromComposites(templates, old []compositeTemplate) {
	for i := range templates {
		t := &templates[i]
		before := find(old, func(o *compositeTemplate) bool { return o.Name == t.Name })
		if before == nil {
			before = &compositeTemplate{}
		}
		g.compositeTemplates.Drop(t, before)
		g.dropFromComposites(t.CompositePodGroupTemplates, before.CompositePodGroupTemplates)
		dropTemplates(g.templates, t.PodGroupTemplates, before.PodGroupTemplates)
	}
}

// dropTemplates compares each template with the one that was at its place.
func dropTemplates(parts declare.Disabled[*template], templates, old []template) {
	for i := range templates {
		if i < len(old) {
			parts.Drop(&templates[i], &old[i])
		} else {
			parts.DropNew(&templates[i])
		}
	}
}

// find returns the last element of a list that matches, nil if there is none.
func find[T any](list []T, matches func(*T) bool) *T {
	for i := len(list) - 1; i >= 0; i-- {
		if matches(&list[i]) {
			return &list[i]
		}
	}
	return nil
}
