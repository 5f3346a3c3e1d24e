package scheduling

import (
	"context"
	"math"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	schedulingv1alpha2 "github.com/keelson-dev/keelson/internal/resource/scheduling/v1alpha2"
)

// groupGates are the feature gates of fields of pod groups.
type groupGates struct {
	topology   bool // schedulingConstraints
	claims     bool // resourceClaims
	preemption bool // disruptionMode, priorityClassName and priority
}

func newGroupGates(gates features.Gates) groupGates {
	return groupGates{
		topology:   gates.Enabled(features.TopologyAwareWorkloadScheduling),
		claims:     gates.Enabled(features.DRAWorkloadResourceClaims),
		preemption: gates.Enabled(features.WorkloadAwarePreemption),
	}
}

// groupFields are the fields that a pod group and a template of one have in common.
type groupFields struct {
	policy            *schedulingv1alpha2.PodGroupSchedulingPolicy
	constraints       **schedulingv1alpha2.PodGroupSchedulingConstraints
	claims            *[]schedulingv1alpha2.PodGroupResourceClaim
	disruptionMode    **schedulingv1alpha2.DisruptionMode
	requireMode       bool // it has a default
	priorityClassName *string
	priority          **int32
}

func fieldsOfGroup(s *schedulingv1alpha2.PodGroupSpec) *groupFields {
	return &groupFields{
		policy: &s.SchedulingPolicy, constraints: &s.SchedulingConstraints, claims: &s.ResourceClaims,
		disruptionMode: &s.DisruptionMode, requireMode: true, priorityClassName: &s.PriorityClassName, priority: &s.Priority,
	}
}

func fieldsOfTemplate(t *schedulingv1alpha2.PodGroupTemplate) *groupFields {
	return &groupFields{
		policy: &t.SchedulingPolicy, constraints: &t.SchedulingConstraints, claims: &t.ResourceClaims,
		disruptionMode: &t.DisruptionMode, priorityClassName: &t.PriorityClassName, priority: &t.Priority,
	}
}

// dropDisabled removes the fields whose gate is off, unless the old object, which may be nil, has them.
func (g groupGates) dropDisabled(f, old *groupFields) {
	if !g.topology && (old == nil || *old.constraints == nil) {
		*f.constraints = nil
	}
	if !g.claims && (old == nil || len(*old.claims) == 0) {
		*f.claims = nil
	}
	if g.preemption {
		return
	}
	if old == nil || *old.disruptionMode == nil {
		*f.disruptionMode = nil
	}
	if old == nil || *old.priorityClassName == "" {
		*f.priorityClassName = ""
	}
	if old == nil || *old.priority == nil {
		*f.priority = nil
	}
}

// validator collects the errors of a new object.
type validator struct {
	ctx  context.Context
	op   operation.Operation
	errs field.ErrorList
}

// newValidator returns a validator without errors. The rules of apimachinery ignore its context.
func newValidator() *validator { return &validator{ctx: context.Background()} }

// add adds errors and reports whether there were any.
func (v *validator) add(errs field.ErrorList) bool {
	v.errs = append(v.errs, errs...)
	return len(errs) > 0
}

// name validates a name that must be set by one of the rules of names.
func (v *validator) name(
	value *string, path *field.Path,
	rule func(context.Context, operation.Operation, *field.Path, *string, *string) field.ErrorList,
) {
	if !v.add(validate.RequiredValue(v.ctx, v.op, path, value, nil)) {
		v.add(rule(v.ctx, v.op, path, value, nil))
	}
}

func (v *validator) workload(s *schedulingv1alpha2.WorkloadSpec, g groupGates, path *field.Path) {
	if r := s.ControllerRef; r != nil {
		at := path.Child("controllerRef")
		if r.APIGroup != "" {
			v.add(validate.LongName(v.ctx, v.op, at.Child("apiGroup"), &r.APIGroup, nil))
		}
		v.name(&r.Kind, at.Child("kind"), validate.PathSegmentName[string])
		v.name(&r.Name, at.Child("name"), validate.PathSegmentName[string])
	}
	at := path.Child("podGroupTemplates")
	if v.add(validate.MaxItems(v.ctx, v.op, at, s.PodGroupTemplates, nil, schedulingv1alpha2.WorkloadMaxPodGroupTemplates)) ||
		v.add(validate.RequiredSlice(v.ctx, v.op, at, s.PodGroupTemplates, nil)) {
		return
	}
	v.add(unique(at, s.PodGroupTemplates, func(item schedulingv1alpha2.PodGroupTemplate) string { return item.Name }))
	for i := range s.PodGroupTemplates {
		t := &s.PodGroupTemplates[i]
		v.name(&t.Name, at.Index(i).Child("name"), validate.ShortName[string])
		v.group(fieldsOfTemplate(t), g, at.Index(i))
	}
}

// templateReference validates which template of a workload a group was made from; nil is none.
func (v *validator) templateReference(r *schedulingv1alpha2.PodGroupTemplateReference, path *field.Path) {
	if r == nil {
		return
	}
	v.add(validate.Union(v.ctx, v.op, path, r, nil, validate.NewUnionMembership(validate.NewUnionMember("workload")),
		func(r *schedulingv1alpha2.PodGroupTemplateReference) bool { return r != nil && r.Workload != nil }))
	if w := r.Workload; w != nil {
		v.name(&w.WorkloadName, path.Child("workload", "workloadName"), validate.LongName[string])
		v.name(&w.PodGroupTemplateName, path.Child("workload", "podGroupTemplateName"), validate.ShortName[string])
	}
}

func (v *validator) group(f *groupFields, g groupGates, path *field.Path) {
	v.policy(f.policy, path.Child("schedulingPolicy"))
	if c := *f.constraints; c != nil && g.topology {
		at := path.Child("schedulingConstraints", "topology")
		const maxConstraints = 1
		if !v.add(validate.MaxItems(v.ctx, v.op, at, c.Topology, nil, maxConstraints)) {
			for i := range c.Topology {
				v.name(&c.Topology[i].Key, at.Index(i).Child("key"), validate.LabelKey[string])
			}
		}
	}
	v.resourceClaims(*f.claims, path.Child("resourceClaims"))
	if !g.preemption {
		return
	}
	at := path.Child("disruptionMode")
	modes := sets.New(schedulingv1alpha2.DisruptionModePod, schedulingv1alpha2.DisruptionModePodGroup)
	if mode := *f.disruptionMode; mode != nil {
		v.add(validate.Enum(v.ctx, v.op, at, mode, nil, modes, nil))
	} else if f.requireMode {
		v.add(validate.RequiredPointer(v.ctx, v.op, at, mode, nil))
	}
	if *f.priorityClassName != "" {
		v.add(validate.LongName(v.ctx, v.op, path.Child("priorityClassName"), f.priorityClassName, nil))
	}
	const maxPriority = 1_000_000_000
	v.add(validate.Maximum(v.ctx, v.op, path.Child("priority"), *f.priority, nil, maxPriority))
	v.add(validate.Minimum(v.ctx, v.op, path.Child("priority"), *f.priority, nil, math.MinInt32))
}

func (v *validator) policy(p *schedulingv1alpha2.PodGroupSchedulingPolicy, path *field.Path) {
	v.add(validate.Union(v.ctx, v.op, path, p, nil,
		validate.NewUnionMembership(validate.NewUnionMember("basic"), validate.NewUnionMember("gang")),
		func(p *schedulingv1alpha2.PodGroupSchedulingPolicy) bool { return p != nil && p.Basic != nil },
		func(p *schedulingv1alpha2.PodGroupSchedulingPolicy) bool { return p != nil && p.Gang != nil }))
	if p.Gang != nil {
		at := path.Child("gang", "minCount")
		if !v.add(validate.RequiredValue(v.ctx, v.op, at, &p.Gang.MinCount, nil)) {
			v.add(validate.Minimum(v.ctx, v.op, at, &p.Gang.MinCount, nil, 1))
		}
	}
}

// maxClaims is the most claims of a group.
const maxClaims = 4

func (v *validator) resourceClaims(claims []schedulingv1alpha2.PodGroupResourceClaim, path *field.Path) {
	if v.add(validate.MaxItems(v.ctx, v.op, path, claims, nil, maxClaims)) {
		return
	}
	v.add(unique(path, claims, func(item schedulingv1alpha2.PodGroupResourceClaim) string { return item.Name }))
	for i := range claims {
		c, at := &claims[i], path.Index(i)
		v.add(validate.Union(v.ctx, v.op, at, c, nil,
			validate.NewUnionMembership(
				validate.NewUnionMember("resourceClaimName"), validate.NewUnionMember("resourceClaimTemplateName")),
			func(c *schedulingv1alpha2.PodGroupResourceClaim) bool { return c != nil && c.ResourceClaimName != nil },
			func(c *schedulingv1alpha2.PodGroupResourceClaim) bool {
				return c != nil && c.ResourceClaimTemplateName != nil
			}))
		v.name(&c.Name, at.Child("name"), validate.ShortName[string])
		if c.ResourceClaimName != nil {
			v.add(validate.LongName(v.ctx, v.op, at.Child("resourceClaimName"), c.ResourceClaimName, nil))
		}
		if c.ResourceClaimTemplateName != nil {
			v.add(validate.LongName(v.ctx, v.op, at.Child("resourceClaimTemplateName"), c.ResourceClaimTemplateName, nil))
		}
	}
}

func (v *validator) claimStatuses(statuses []schedulingv1alpha2.PodGroupResourceClaimStatus, path *field.Path) {
	if v.add(validate.MaxItems(v.ctx, v.op, path, statuses, nil, maxClaims)) {
		return
	}
	v.add(unique(path, statuses, func(item schedulingv1alpha2.PodGroupResourceClaimStatus) string { return item.Name }))
	for i := range statuses {
		if name := statuses[i].ResourceClaimName; name != nil {
			v.add(validate.LongName(v.ctx, v.op, path.Index(i).Child("resourceClaimName"), name, nil))
		}
	}
}

// unique returns an error for each item with the name of one before it.
func unique[T any](path *field.Path, list []T, name func(T) string) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, item := range list {
		if seen.Has(name(item)) {
			errs = append(errs, field.Duplicate(path.Index(i), item))
		}
		seen.Insert(name(item))
	}
	return errs
}
