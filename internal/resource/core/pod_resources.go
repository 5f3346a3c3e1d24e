package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isPodLevelResource reports whether the resource can be requested for a pod as a whole.
func isPodLevelResource(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugePages(name)
}

// defaultPodResources sets defaults of the resources of the pod as a whole, if it has any
// limits. A missing limit of huge pages becomes the total of the containers' limits. A missing
// request becomes the total of the containers' requests or, if they have none, the limit.
func defaultPodResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil {
		return
	}
	for name, q := range AggregateContainerResources(s,
		func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }) {
		if _, ok := r.Limits[name]; isHugePages(name) && !ok {
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			r.Limits[name] = q
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	requests := r.Requests
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	for name, q := range AggregateContainerResources(s,
		func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }) {
		if _, ok := requests[name]; !ok && isPodLevelResource(name) && !isHugePages(name) {
			requests[name] = q
		}
	}
	for name, q := range r.Limits {
		if _, ok := requests[name]; !ok && isPodLevelResource(name) {
			requests[name] = q.DeepCopy()
		}
	}
	if len(requests) > 0 {
		r.Requests = requests
	}
}

// AggregateContainerResources returns the most that the containers of a pod need at one time.
// This is the sum of the regular containers and sidecars or, if larger, an init container
// together with the sidecars that are started before it.
func AggregateContainerResources(
	s *corev1.PodSpec, of func(*corev1.ResourceRequirements) corev1.ResourceList,
) corev1.ResourceList {
	total, sidecars, starting := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range s.Containers {
		addResources(total, of(&s.Containers[i].Resources))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		need := of(&c.Resources)
		if isSidecar(c) {
			addResources(total, need)
			addResources(sidecars, need)
			need = nil
		}
		now := corev1.ResourceList{}
		addResources(now, sidecars)
		addResources(now, need)
		maxResources(starting, now)
	}
	maxResources(total, starting)
	return total
}

// PodRequests returns what a pod requests in total: the requests of the pod as a whole or, where it has none, the most
// that its containers need at one time, and the overhead of its RuntimeClass.
func PodRequests(s *corev1.PodSpec) corev1.ResourceList {
	total := AggregateContainerResources(s, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
	if s.Resources != nil {
		for name, q := range s.Resources.Requests {
			if isPodLevelResource(name) {
				total[name] = q.DeepCopy()
			}
		}
	}
	addResources(total, s.Overhead)
	return total
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func addResources(to, list corev1.ResourceList) {
	for name, q := range list {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

func maxResources(to, list corev1.ResourceList) {
	for name, q := range list {
		if have, ok := to[name]; !ok || q.Cmp(have) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}

// QOSClass returns the quality of service class in the status of a pod or, if it has none, the one
// of its spec.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	if class := p.Status.QOSClass; class != "" {
		return class
	}
	return qosClass(&p.Spec)
}

// qosClass returns the quality of service class of a spec. It depends on the requests and limits of CPU
// and memory of the pod or, if the pod has no resources, of all containers.
func qosClass(s *corev1.PodSpec) corev1.PodQOSClass {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	guaranteed := true
	count := func(r *corev1.ResourceRequirements) {
		limited := 0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			zero := resource.Quantity{}
			if q, ok := r.Requests[name]; ok && q.Cmp(zero) > 0 {
				addResources(requests, corev1.ResourceList{name: q})
			}
			if q, ok := r.Limits[name]; ok && q.Cmp(zero) > 0 {
				addResources(limits, corev1.ResourceList{name: q})
				limited++
			}
		}
		guaranteed = guaranteed && limited == 2
	}
	if r := s.Resources; r != nil {
		count(r)
	} else {
		for _, c := range slices.Concat(s.Containers, s.InitContainers) {
			count(&c.Resources)
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	for name, q := range requests {
		if limit, ok := limits[name]; !ok || limit.Cmp(q) != 0 {
			guaranteed = false
		}
	}
	if guaranteed && len(requests) == len(limits) {
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// mergeMatchLabelKeys adds requirements for matchLabelKeys and mismatchLabelKeys to the label
// selectors that they belong to, with the values of the pod's own labels.
func mergeMatchLabelKeys(p *corev1.Pod) {
	merge := func(selector *metav1.LabelSelector, keys []string, op metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, ok := p.Labels[key]; ok && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
			}
		}
	}
	term := func(t *corev1.PodAffinityTerm) {
		merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
		merge(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	if a := p.Spec.Affinity; a != nil {
		eachTerm(a.PodAffinity, term)
		eachTerm((*corev1.PodAffinity)(a.PodAntiAffinity), term)
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// eachTerm calls f for the terms of an affinity, which may be nil.
func eachTerm(a *corev1.PodAffinity, f func(*corev1.PodAffinityTerm)) {
	if a == nil {
		return
	}
	for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
		f(&a.RequiredDuringSchedulingIgnoredDuringExecution[i])
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		f(&a.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm)
	}
}
