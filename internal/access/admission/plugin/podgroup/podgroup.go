// Package podgroup refuses PodGroups of a Workload, or of a template in it, that does not exist
// (PodGroupWorkloadExists).
package podgroup

import (
	"context"
	"slices"

	"github.com/keelson-dev/keelson/internal/access/admission"
	schedulingv1alpha2 "github.com/keelson-dev/keelson/internal/resource/scheduling/v1alpha2"
)

var (
	groups    = schedulingv1alpha2.SchemeGroupVersion.WithResource("podgroups").GroupResource()
	workloads = schedulingv1alpha2.SchemeGroupVersion.WithResource("workloads").GroupResource()
)

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	return admission.Plugin{Name: "PodGroupWorkloadExists", Validate: (&plugin{in}).validate}
}

type plugin struct{ objects admission.Objects }

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(groups, admission.Create) {
		return nil
	}
	r := a.Object.(*schedulingv1alpha2.PodGroup).Spec.PodGroupTemplateRef
	if r == nil || r.Workload == nil {
		return nil
	}
	name, template := r.Workload.WorkloadName, r.Workload.PodGroupTemplateName
	found, err := p.objects.Lookup(ctx, workloads, a.Namespace, name)
	if err != nil {
		return err
	}
	if found == nil {
		return a.Forbiddenf("PodGroup rejected: Workload %q not found", name)
	}
	workload := found.(*schedulingv1alpha2.Workload)
	if workload.DeletionTimestamp != nil {
		return a.Forbiddenf("PodGroup rejected: Workload %q is being deleted", name)
	}
	if !slices.ContainsFunc(workload.Spec.PodGroupTemplates, func(t schedulingv1alpha2.PodGroupTemplate) bool {
		return t.Name == template
	}) {
		return a.Forbiddenf("PodGroup rejected: PodGroupTemplate %q not found in Workload %q", template, name)
	}
	return nil
}
