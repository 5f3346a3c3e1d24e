// Package priority sets the priority of a pod from its PriorityClass (Priority).
package priority

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/access/admission"
)

var (
	pods    = corev1.Resource("pods")
	classes = schedulingv1.Resource("priorityclasses")
)

// builtIn are the values of the classes that every cluster has, in case that their objects are missing.
var builtIn = map[string]int32{
	"system-node-critical":    2000001000,
	"system-cluster-critical": 2000000000,
}

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	p := plugin{in}
	return admission.Plugin{Name: "Priority", Mutate: p.mutate, Validate: p.validate}
}

type plugin struct{ objects admission.Objects }

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	switch {
	case a.Is(pods, admission.Create):
		return p.compute(ctx, a, &a.Object.(*corev1.Pod).Spec)
	case a.Is(pods, admission.Update):
		keepComputedFields(&a.Object.(*corev1.Pod).Spec, &a.Old.(*corev1.Pod).Spec)
	}
	return nil
}

// keepComputedFields copies the fields that the plug-in set at the creation of the pod, so that a client may omit them
// in an update. Validation refuses changes of them.
func keepComputedFields(spec, old *corev1.PodSpec) {
	spec.Priority = cmp.Or(spec.Priority, old.Priority)
	spec.PreemptionPolicy = cmp.Or(spec.PreemptionPolicy, old.PreemptionPolicy)
}

func (p *plugin) compute(ctx context.Context, a *admission.Attributes, spec *corev1.PodSpec) error {
	var class *schedulingv1.PriorityClass
	var err error
	if spec.PriorityClassName == "" {
		if class, err = p.defaultClass(ctx); err != nil {
			return err
		}
		if class == nil {
			class = &schedulingv1.PriorityClass{}
		}
		spec.PriorityClassName = class.Name
	} else {
		if class, err = p.class(ctx, spec.PriorityClassName); err != nil {
			return err
		}
		if class == nil {
			return a.Forbiddenf("no PriorityClass with name %s was found", spec.PriorityClassName)
		}
	}
	value, policy := class.Value, ptr.Deref(class.PreemptionPolicy, corev1.PreemptLowerPriority)
	if sent := spec.Priority; sent != nil && *sent != value {
		return a.Forbiddenf("the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *sent, value)
	}
	if sent := spec.PreemptionPolicy; sent != nil && *sent != policy {
		return a.Forbiddenf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *sent, policy)
	}
	spec.Priority, spec.PreemptionPolicy = &value, &policy
	return nil
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
