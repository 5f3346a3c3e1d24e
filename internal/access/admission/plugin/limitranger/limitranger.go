// Package limitranger applies the LimitRanges of a namespace (LimitRanger): it sets default requests and limits of
// containers, and refuses pods and PersistentVolumeClaims outside of the ranges.
package limitranger

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

var (
	pods        = corev1.Resource("pods")
	claims      = corev1.Resource("persistentvolumeclaims")
	limitRanges = corev1.Resource("limitranges")
)

// annotation lists the requests and limits that the plug-in has set in a pod.
const annotation = "kubernetes.io/limit-ranger"

// Plugin returns the plug-in.
func Plugin(in admission.Objects) admission.Plugin {
	p := plugin{in}
	return admission.Plugin{Name: "LimitRanger", Mutate: p.mutate, Validate: p.validate}
}

type plugin struct{ objects admission.Objects }

// applies reports whether LimitRanges apply to a write: new pods, new resources of a pod by its subresource resize, and
// claims. Other updates of pods cannot change resources. Objects that are being deleted may be changed freely, so that
// their finalizers can be removed.
func applies(a *admission.Attributes) bool {
	switch {
	case a.Is(pods, admission.Create), a.Is(claims, admission.Create):
		return true
	case a.Is(claims, admission.Update),
		a.Operation == admission.Update && a.Resource == pods && a.Subresource == "resize":
		return a.Old.GetDeletionTimestamp() == nil
	}
	return false
}

func (p *plugin) mutate(ctx context.Context, a *admission.Attributes) error {
	if a.Resource != pods || !applies(a) {
		return nil
	}
	ranges, err := p.objects.List(ctx, limitRanges, a.Namespace)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		setDefaults(a.Object.(*corev1.Pod), r.(*corev1.LimitRange))
	}
	return nil
}

// setDefaults sets missing requests and limits of containers, and lists them in an annotation.
func setDefaults(pod *corev1.Pod, r *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range r.Spec.Limits {
		if item := &r.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			setMissing(&requests, item.DefaultRequest, true)
			setMissing(&limits, item.Default, true)
		}
	}
	var done []string
	for kind, containers := range podContainers(pod) {
		for i := range containers {
			c := &containers[i]
			if names := setMissing(&c.Resources.Requests, requests, false); names != nil {
				done = append(done, fmt.Sprintf("%s request for %s %s", strings.Join(names, ", "), kind, c.Name))
			}
			if names := setMissing(&c.Resources.Limits, limits, false); names != nil {
				done = append(done, fmt.Sprintf("%s limit for %s %s", strings.Join(names, ", "), kind, c.Name))
			}
		}
	}
	if done == nil {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(done, "; ")
}

// podContainers yields the two lists of containers that can have resources, each with the name that messages use.
func podContainers(pod *corev1.Pod) func(yield func(string, []corev1.Container) bool) {
	return func(yield func(string, []corev1.Container) bool) {
		if yield("container", pod.Spec.Containers) {
			yield("init container", pod.Spec.InitContainers)
		}
	}
}

// setMissing copies the values that list does not have yet; if replace is true, it also overwrites existing ones.
// It returns the names of the values that it has set, in order.
func setMissing(list *corev1.ResourceList, values corev1.ResourceList, replace bool) []string {
	var set []string
	for name, q := range values {
		if _, ok := (*list)[name]; ok && !replace {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q.DeepCopy()
		set = append(set, string(name))
	}
	slices.Sort(set)
	return set
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if !applies(a) {
		return nil
	}
	ranges, err := p.objects.List(ctx, limitRanges, a.Namespace)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		var faults []error
		if a.Resource == claims {
			faults = claimFaults(r.(*corev1.LimitRange), a.Object.(*corev1.PersistentVolumeClaim))
		} else {
			faults = podFaults(r.(*corev1.LimitRange), a.Object.(*corev1.Pod))
		}
		if err := utilerrors.NewAggregate(faults); err != nil {
			return a.Forbidden(err)
		}
	}
	return nil
}

func podFaults(r *corev1.LimitRange, pod *corev1.Pod) []error {
	var errs []error
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, containers := range podContainers(pod) {
				for j := range containers {
					c := &containers[j].Resources
					errs = append(errs, faults(item, c.Requests, c.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			requests := podResources(&pod.Spec, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
			limits := podResources(&pod.Spec, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
			errs = append(errs, faults(item, requests, limits)...)
		}
	}
	return errs
}

// podResources returns the requests or the limits of a whole pod. CPU and memory of the pod itself replace the sums of
// its containers.
func podResources(
	spec *corev1.PodSpec, of func(*corev1.ResourceRequirements) corev1.ResourceList,
) corev1.ResourceList {
	total := core.AggregateContainerResources(spec, of)
	if spec.Resources == nil {
		return total
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := of(spec.Resources)[name]; ok {
			total[name] = q
		}
	}
	return total
}

// claimFaults returns an error for each bound that a claim violates. Only the requests of claims have bounds.
func claimFaults(r *corev1.LimitRange, claim *corev1.PersistentVolumeClaim) []error {
	var errs []error
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		requests := claim.Spec.Resources.Requests
		errs = append(errs, each(item, item.Min, requests, nil, minFault)...)
		errs = append(errs, each(item, item.Max, requests, nil, maxRequestFault)...)
	}
	return errs
}
