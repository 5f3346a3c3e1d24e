package scheduling

import (
	"context"

	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validator collects the errors of workloads and groups, in the order of kube-apiserver. An old value is nil if there is
// none.
type validator struct {
	gates *groupGates
	declare.Rules
}

// longName validates a name if there is one.
func (v *validator) longName(name *string, path *field.Path) {
	if name != nil {
		declare.Check(&v.Rules, validate.LongName[string], name, path)
	}
}

// nonEmpty returns a pointer to a text, nil if it is empty.
func nonEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// workload validates a spec. A workload has templates of one sort, and the sort cannot change. A template can be
// changed only as far as its fields allow; see group.
func (v *validator) workload(s, old *schedulingv1beta1.WorkloadSpec, path *field.Path) {
	existed := old != nil
	var before []bool
	if existed {
		before = []bool{len(old.PodGroupTemplates) > 0, len(old.CompositePodGroupTemplates) > 0}
	} else {
		old = &schedulingv1beta1.WorkloadSpec{}
	}
	v.OneOf(path, []bool{len(s.PodGroupTemplates) > 0, len(s.CompositePodGroupTemplates) > 0}, before,
		"podGroupTemplates", "compositePodGroupTemplates")
	at := path.Child("controllerRef")
	if r := s.ControllerRef; declare.Changed(existed, r, old.ControllerRef) && !v.Fixed(existed, at) && r != nil {
		v.longName(nonEmpty(r.APIGroup), at.Child("apiGroup"))
		declare.Text(&v.Rules, r.Kind, at.Child("kind"), validate.PathSegmentName[string])
		declare.Text(&v.Rules, r.Name, at.Child("name"), validate.PathSegmentName[string])
	}
	v.templates(existed, s.PodGroupTemplates, old.PodGroupTemplates, path.Child("podGroupTemplates"))
	v.compositeTemplates(existed, s.CompositePodGroupTemplates, old.CompositePodGroupTemplates,
		path.Child("compositePodGroupTemplates"), !v.gates.composite)
}

// maxTemplates is the most templates of each sort in a workload or a composite template.
const maxTemplates = schedulingv1beta1.WorkloadMaxPodGroupTemplates

// bounded reports whether the elements of a list of templates have to be validated.
func bounded[T any](v *validator, existed bool, list, old []T, path *field.Path, name func(*T) string) bool {
	stop := declare.MaxItems(&v.Rules, list, path, maxTemplates)
	if existed {
		stop = declare.SameElements(&v.Rules, list, old, path, name) || stop
	}
	return !stop
}

// templates validates the templates in a list. They are matched with the old ones by their names. None can be
// added or removed, because groups may already have been made from them.
func (v *validator) templates(existed bool, templates, old []template, path *field.Path) {
	name := func(t *template) string { return t.Name }
	if !declare.Changed(existed, templates, old) || !bounded(v, existed, templates, old, path, name) {
		return
	}
	declare.Elements(&v.Rules, templates, old, path, name, func(t, old *template, path *field.Path) {
		if old == nil {
			declare.Text(&v.Rules, t.Name, path.Child("name"), validate.ShortName[string])
			v.group(fieldsOfTemplate(t), nil, path)
		} else {
			v.group(fieldsOfTemplate(t), fieldsOfTemplate(old), path)
		}
	})
}

// compositeTemplates validates composite templates; off says that there may be none.
func (v *validator) compositeTemplates(existed bool, templates, old []compositeTemplate, path *field.Path, off bool) {
	name := func(t *compositeTemplate) string { return t.Name }
	if !declare.Changed(existed, templates, old) {
		return
	}
	off = v.Forbidden(off && len(templates) > 0, path)
	if !bounded(v, existed, templates, old, path, name) || off {
		return
	}
	declare.Elements(&v.Rules, templates, old, path, name, func(t, old *compositeTemplate, path *field.Path) {
		existed := old != nil
		var before *groupFields
		if existed {
			before = fieldsOfComposite(old)
		} else {
			old = &compositeTemplate{}
			declare.Text(&v.Rules, t.Name, path.Child("name"), validate.ShortName[string])
		}
		v.group(fieldsOfComposite(t), before, path)
		v.templates(existed, t.PodGroupTemplates, old.PodGroupTemplates, path.Child("podGroupTemplates"))
		v.compositeTemplates(existed, t.CompositePodGroupTemplates, old.CompositePodGroupTemplates,
			path.Child("compositePodGroupTemplates"), false)
	})
}

// podGroup validates a spec. Which group a pod group belongs to and which template it was made from is fixed when
// it is created. A parent that was set while the gate was on may stay, because only changes are validated.
func (v *validator) podGroup(s, old *schedulingv1beta1.PodGroupSpec, path *field.Path) {
	existed := old != nil
	var before *groupFields
	if existed {
		before = fieldsOfGroup(old)
	} else {
		old = &schedulingv1beta1.PodGroupSpec{}
	}
	at := path.Child("parentCompositePodGroupName")
	if p := s.ParentCompositePodGroupName; declare.Changed(existed, p, old.ParentCompositePodGroupName) {
		stop := v.Forbidden(!v.gates.composite && p != nil, at)
		if stop = v.Fixed(existed, at) || stop; !stop {
			v.longName(p, at)
		}
	}
	at = path.Child("workloadRef")
	if r := s.WorkloadRef; declare.Changed(existed, r, old.WorkloadRef) && !v.Fixed(existed, at) && r != nil {
		v.workloadReference(r.WorkloadName, r.TemplateName, at)
	}
	v.group(fieldsOfGroup(s), before, path)
}

// compositeGroup validates a spec. The reference to the workload is required here, unlike in a pod group. The
// gate is not asked: without it the kind is not served.
func (v *validator) compositeGroup(s, old *schedulingv1alpha3.CompositePodGroupSpec, path *field.Path) {
	existed := old != nil
	var before *groupFields
	if existed {
		before = fieldsOfCompositeGroup(old)
	} else {
		old = &schedulingv1alpha3.CompositePodGroupSpec{}
	}
	at := path.Child("parentCompositePodGroupName")
	if p := s.ParentCompositePodGroupName; declare.Changed(existed, p, old.ParentCompositePodGroupName) &&
		!v.Fixed(existed, at) {
		v.longName(p, at)
	}
	at = path.Child("workloadRef")
	if r := s.WorkloadRef; declare.Changed(existed, r, old.WorkloadRef) {
		stop := v.Fixed(existed, at)
		if stop = v.Required(r == nil, at) || stop; !stop {
			v.workloadReference(r.WorkloadName, r.TemplateName, at)
		}
	}
	v.group(fieldsOfCompositeGroup(s), before, path)
}

func (v *validator) workloadReference(workload, template string, path *field.Path) {
	declare.Text(&v.Rules, workload, path.Child("workloadName"), validate.LongName[string])
	declare.Text(&v.Rules, template, path.Child("templateName"), validate.ShortName[string])
}

// groupFields are the fields that pod groups, composite pod groups and the templates of both have in common.
type groupFields struct {
	composite bool // there are other rules for the fields of composite groups and templates
	template  bool // there are other rules for the fields of templates

	basic      bool
	gang       *int32                                  // the least number of members, nil without a gang
	topology   *[]schedulingv1beta1.TopologyConstraint // nil without constraints
	claims     []schedulingv1beta1.PodGroupResourceClaim
	mode       *[2]bool // whether single and all are set, nil without a mode
	class      string
	priority   *int32
	preemption *schedulingv1beta1.PreemptionPolicy
}

// fieldsOfGroup returns the fields of a pod group, which has all fields of a template except the name.
func fieldsOfGroup(s *schedulingv1beta1.PodGroupSpec) *groupFields {
	return fieldsOfTemplate(&template{
		SchedulingPolicy: s.SchedulingPolicy, SchedulingConstraints: s.SchedulingConstraints,
		ResourceClaims: s.ResourceClaims, DisruptionMode: s.DisruptionMode, PriorityClassName: s.PriorityClassName,
		Priority: s.Priority, PreemptionPolicy: s.PreemptionPolicy,
	}).ofGroup()
}

// ofGroup says that the fields are those of a group, and returns them.
func (f *groupFields) ofGroup() *groupFields {
	f.template = false
	return f
}

func fieldsOfTemplate(t *template) *groupFields {
	f := &groupFields{
		template: true, basic: t.SchedulingPolicy.Basic != nil, claims: t.ResourceClaims, class: t.PriorityClassName,
		priority: t.Priority, preemption: t.PreemptionPolicy,
	}
	if gang := t.SchedulingPolicy.Gang; gang != nil {
		f.gang = &gang.MinCount
	}
	if c := t.SchedulingConstraints; c != nil {
		f.topology = &c.Topology
	}
	if m := t.DisruptionMode; m != nil {
		f.mode = &[2]bool{m.Single != nil, m.All != nil}
	}
	return f
}

// fieldsOfComposite returns the fields of a composite template. A gang counts groups there, not pods:
// minGroupCount. Claims belong to pod groups only.
func fieldsOfComposite(t *compositeTemplate) *groupFields {
	f := &groupFields{
		composite: true, template: true, basic: t.SchedulingPolicy.Basic != nil, class: t.PriorityClassName,
		priority: t.Priority, preemption: t.PreemptionPolicy,
	}
	if gang := t.SchedulingPolicy.Gang; gang != nil {
		f.gang = &gang.MinGroupCount
	}
	if c := t.SchedulingConstraints; c != nil {
		f.topology = &c.Topology
	}
	if m := t.DisruptionMode; m != nil {
		f.mode = &[2]bool{m.Single != nil, m.All != nil}
	}
	return f
}

func fieldsOfCompositeGroup(s *schedulingv1alpha3.CompositePodGroupSpec) *groupFields {
	f := &groupFields{
		composite: true, basic: s.SchedulingPolicy.Basic != nil, class: s.PriorityClassName, priority: s.Priority,
		preemption: (*schedulingv1beta1.PreemptionPolicy)(s.PreemptionPolicy),
	}
	if gang := s.SchedulingPolicy.Gang; gang != nil {
		f.gang = &gang.MinGroupCount
	}
	if c := s.SchedulingConstraints; c != nil {
		var topology []schedulingv1beta1.TopologyConstraint
		for _, t := range c.Topology {
			topology = append(topology, schedulingv1beta1.TopologyConstraint(t))
		}
		f.topology = &topology
	}
	if m := s.DisruptionMode; m != nil {
		f.mode = &[2]bool{m.Single != nil, m.All != nil}
	}
	return f
}

// group validates the fields that all sorts have. Only the size of a gang can be changed later, and not in a
// composite group. A pod group can also lose its constraints while their gate is off. In a group the disruption
// mode is required, but the defaults set it; a template may leave it out.
func (v *validator) group(f, old *groupFields, path *field.Path) {
	existed := old != nil
	if !existed {
		old = &groupFields{}
	}
	at := path.Child("schedulingPolicy")
	policyChanged := f.basic != old.basic || !ptr.Equal(f.gang, old.gang)
	switch {
	case !existed:
		v.policy(f, nil, at)
	case policyChanged && f.composite && !f.template:
		v.Fixed(true, at)
	case policyChanged:
		v.policy(f, old, at)
	}
	v.constraints(existed, f, old, path.Child("schedulingConstraints"))
	v.claims(existed, f.claims, old.claims, path.Child("resourceClaims"))
	at = path.Child("disruptionMode")
	if declare.Changed(existed, f.mode, old.mode) {
		stop := v.Fixed(existed, at)
		if stop = v.Required(f.mode == nil && !f.template, at) || stop; !stop && f.mode != nil {
			v.OneOf(at, f.mode[:], nil, "single", "all")
		}
	}
	at = path.Child("priorityClassName")
	if declare.Changed(existed, f.class, old.class) && !v.Fixed(existed, at) {
		v.longName(nonEmpty(f.class), at)
	}
	at = path.Child("priority")
	if declare.Changed(existed, f.priority, old.priority) && !v.Fixed(existed, at) {
		v.Add(validate.Maximum(context.Background(), operation.Operation{}, at, f.priority, nil, highestUserPriority)...)
	}
	at = path.Child("preemptionPolicy")
	if declare.Changed(existed, f.preemption, old.preemption) {
		stop := v.Forbidden(!v.gates.preemption && f.preemption != nil, at)
		if stop = v.Fixed(existed, at) || stop; !stop {
			policies := sets.New(schedulingv1beta1.PreemptLowerPriority, schedulingv1beta1.PreemptNever)
			v.Add(validate.Enum(context.Background(), operation.Operation{}, at, f.preemption, nil, policies, nil)...)
		}
	}
}

// policy validates the policy of a group, in which the number of members of a gang may change.
// basic and gang exclude each other and cannot be exchanged. The number may change so that a workload can be
// scaled: the scheduler uses it only for pods that it has not placed yet.
func (v *validator) policy(f, old *groupFields, path *field.Path) {
	var before []bool
	if old != nil {
		before = []bool{old.basic, old.gang != nil}
	}
	v.OneOf(path, []bool{f.basic, f.gang != nil}, before, "basic", "gang")
	if old != nil {
		v.Fixed(f.basic != old.basic, path.Child("basic"))
		if v.Kept(old.gang != nil, f.gang != nil, false, path.Child("gang")) || ptr.Equal(f.gang, old.gang) {
			return
		}
	}
	if f.gang == nil {
		return
	}
	at := path.Child("gang", "minCount")
	if f.composite {
		at = path.Child("gang", "minGroupCount")
	}
	if !v.Required(*f.gang == 0, at) {
		v.Add(validate.Minimum(context.Background(), operation.Operation{}, at, f.gang, nil, 1)...)
	}
}

func (v *validator) constraints(existed bool, f, old *groupFields, path *field.Path) {
	if !declare.Changed(existed, f.topology, old.topology) {
		return
	}
	off := !v.gates.topology && !f.composite
	stop := v.Forbidden(off && f.topology != nil, path)
	if f.template || !off { // a group may lose its constraints while the gate is off
		stop = v.Fixed(existed, path) || stop
	}
	if stop || f.topology == nil {
		return
	}
	at := path.Child("topology")
	const maxConstraints = 1
	if declare.MaxItems(&v.Rules, *f.topology, at, maxConstraints) {
		return
	}
	for i, c := range *f.topology {
		declare.Text(&v.Rules, c.Key, at.Index(i).Child("key"), validate.LabelKey[string])
	}
}

// maxClaims is the most claims of a group.
const maxClaims = schedulingv1beta1.MaxPodGroupResourceClaims

// claims validates the claims that the pods of a group share. They cannot change. A pod uses one by a claim in
// its own spec with the same name and the same source.
func (v *validator) claims(existed bool, claims, old []schedulingv1beta1.PodGroupResourceClaim, path *field.Path) {
	if !declare.Changed(existed, claims, old) {
		return
	}
	stop := v.Fixed(existed, path)
	if stop = declare.MaxItems(&v.Rules, claims, path, maxClaims) || stop; stop {
		return
	}
	declare.Elements(&v.Rules, claims, nil, path, func(c *schedulingv1beta1.PodGroupResourceClaim) string { return c.Name },
		func(c, _ *schedulingv1beta1.PodGroupResourceClaim, path *field.Path) {
			v.OneOf(path, []bool{c.ResourceClaimName != nil, c.ResourceClaimTemplateName != nil}, nil,
				"resourceClaimName", "resourceClaimTemplateName")
			declare.Text(&v.Rules, c.Name, path.Child("name"), validate.ShortName[string])
			v.longName(c.ResourceClaimName, path.Child("resourceClaimName"))
			v.longName(c.ResourceClaimTemplateName, path.Child("resourceClaimTemplateName"))
		})
}

// claimStatuses validates which claims were made from templates. g.validateStatus requires that their names are
// those of claims of the spec.
func (v *validator) claimStatuses(statuses, old []schedulingv1beta1.PodGroupResourceClaimStatus, path *field.Path) {
	if !declare.Changed(true, statuses, old) || declare.MaxItems(&v.Rules, statuses, path, maxClaims) {
		return
	}
	declare.Elements(&v.Rules, statuses, old, path, func(s *schedulingv1beta1.PodGroupResourceClaimStatus) string { return s.Name },
		func(s, old *schedulingv1beta1.PodGroupResourceClaimStatus, path *field.Path) {
			if old == nil || !ptr.Equal(s.ResourceClaimName, old.ResourceClaimName) {
				v.longName(s.ResourceClaimName, path.Child("resourceClaimName"))
			}
		})
}
