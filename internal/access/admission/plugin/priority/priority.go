// Package priority sets the priority of a pod or of a group of pods from its PriorityClass (Priority).
package priority

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var (
	pods            = corev1.Resource("pods")
	classes         = schedulingv1.Resource("priorityclasses")
	groups          = schedulingv1.Resource("podgroups")
	compositeGroups = schedulingv1.Resource("compositepodgroups")
)

// builtIn are the values of the classes that every cluster has, in case that their objects are missing.
var builtIn = map[string]int32{
	"system-node-critical":    2000001000,
	"system-cluster-critical": 2000000000,
}

// Plugin returns the plug-in. policies says whether groups of pods have a preemption policy.
func Plugin(in admission.Objects, policies bool) admission.Plugin {
	p := plugin{in, policies}
	return admission.Plugin{Name: "Priority", Mutate: p.mutate, Validate: p.validate}
}

type plugin struct {
	objects  admission.Objects
	policies bool
}

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	switch {
	case a.Is(pods, admission.Create):
		return p.computePod(ctx, a, &a.Object.(*corev1.Pod).Spec)
	case a.Is(pods, admission.Update):
		keepComputedFields(&a.Object.(*corev1.Pod).Spec, &a.Old.(*corev1.Pod).Spec)
	case a.Is(groups, admission.Create):
		s := &a.Object.(*schedulingv1beta1.PodGroup).Spec
		return computeGroup(ctx, p, a, groupFields[schedulingv1beta1.PreemptionPolicy]{
			"pod group", &s.PriorityClassName, &s.Priority, &s.PreemptionPolicy})
	case a.Is(compositeGroups, admission.Create):
		s := &a.Object.(*schedulingv1alpha3.CompositePodGroup).Spec
		return computeGroup(ctx, p, a, groupFields[schedulingv1alpha3.PreemptionPolicy]{
			"composite pod group", &s.PriorityClassName, &s.Priority, &s.PreemptionPolicy})
	}
	return nil
}

// keepComputedFields copies the fields that the plug-in set at the creation of the pod, so that a client may omit them
// in an update. Validation refuses changes of them.
func keepComputedFields(spec, old *corev1.PodSpec) {
	spec.Priority = cmp.Or(spec.Priority, old.Priority)
	spec.PreemptionPolicy = cmp.Or(spec.PreemptionPolicy, old.PreemptionPolicy)
}

// computePod sets the fields of a pod.
func (p *plugin) computePod(ctx context.Context, a *admission.Attributes, spec *corev1.PodSpec) error {
	name, value, policy, err := p.establish(ctx, a, spec.PriorityClassName)
	if err != nil {
		return err
	}
	if sent := spec.Priority; sent != nil && *sent != value {
		return a.Forbiddenf("the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *sent, value)
	}
	if sent := spec.PreemptionPolicy; sent != nil && *sent != policy {
		return a.Forbiddenf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *sent, policy)
	}
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = name, &value, &policy
	return nil
}

// groupFields points to the fields of a group of pods. what is the name of the group's kind in messages, and P the
// type of its preemption policy.
type groupFields[P ~string] struct {
	what     string
	class    *string
	priority **int32
	policy   **P
}

// computeGroup sets the fields of a group of pods.
func computeGroup[P ~string](ctx context.Context, p *plugin, a *admission.Attributes, f groupFields[P]) error {
	name, value, policy, err := p.establish(ctx, a, *f.class)
	if err != nil {
		return err
	}
	if sent := *f.priority; sent != nil && *sent != value {
		return a.Forbiddenf("priority set in the %s (%d) must match the priority computed (%d) based on the priority "+
			"class set in the spec", f.what, *sent, value)
	}
	*f.class, *f.priority = name, &value
	if !p.policies {
		return nil
	}
	computed := P(policy)
	if sent := *f.policy; sent != nil && *sent != computed {
		return a.Forbiddenf("the string value of PreemptionPolicy (%s) must not be provided in %s spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *sent, f.what, computed)
	}
	*f.policy = &computed
	return nil
}

// establish returns the name, the value and the preemption policy of a class, or of the default class if the name is empty.
func (p *plugin) establish(
	ctx context.Context, a *admission.Attributes, name string,
) (string, int32, corev1.PreemptionPolicy, error) {
	var class *schedulingv1.PriorityClass
	var err error
	if name == "" {
		class, err = p.defaultClass(ctx)
	} else if class, err = p.class(ctx, name); class == nil && err == nil {
		err = a.Forbiddenf("no PriorityClass with name %s was found", name)
	}
	if err != nil {
		return "", 0, "", err
	}
	if class == nil {
		class = &schedulingv1.PriorityClass{}
	}
	return class.Name, class.Value, ptr.Deref(class.PreemptionPolicy, corev1.PreemptLowerPriority), nil
}

// class returns the class of that name, or nil if there is none.
func (p *plugin) class(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	obj, err := p.objects.Lookup(ctx, classes, "", name)
	if err != nil {
		return nil, err
	}
	if obj != nil {
		return obj.(*schedulingv1.PriorityClass), nil
	}
	value, ok := builtIn[name]
	if !ok {
		return nil, nil
	}
	class := &schedulingv1.PriorityClass{Value: value}
	class.Name = name
	return class, nil
}

// defaultClass returns the class of pods without a class name, or nil if there is none. If there are several, it
// returns the one with the lowest value.
func (p *plugin) defaultClass(ctx context.Context) (*schedulingv1.PriorityClass, error) {
	objs, err := p.objects.List(ctx, classes, "")
	if err != nil {
		return nil, err
	}
	var found *schedulingv1.PriorityClass
	for _, obj := range objs {
		if c := obj.(*schedulingv1.PriorityClass); c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found, nil
}

// validate refuses a second default class.
func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if !a.Is(classes, admission.Create, admission.Update) {
		return nil
	}
	class := a.Object.(*schedulingv1.PriorityClass)
	if !class.GlobalDefault {
		return nil
	}
	other, err := p.defaultClass(ctx)
	if err != nil || other == nil || a.Operation == admission.Update && other.Name == class.Name {
		return err
	}
	return a.Forbiddenf("PriorityClass %s is already marked as default. Only one default can exist", other.Name)
}
