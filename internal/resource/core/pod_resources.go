package core

import (
	"cmp"
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
// It runs with the other defaults, before mutating admission. See completePodResources for the later time
// (KEP-2837).
func defaultPodResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil {
		return
	}
	for name, q := range AggregateContainerResources(s, limitsOf) {
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
	for name, q := range AggregateContainerResources(s, requestsOf) {
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

// keepPodResources gives a pod the resources of the pod that it replaces if it has none: a client that does not know the
// field must not remove it.
func (g *PodGates) keepPodResources(p, old *corev1.Pod) {
	if g.latePodResources && p.Spec.Resources == nil {
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
}

// completePodResources sets the resources that a pod as a whole lacks, from those of its containers. It does nothing for a
// pod without resources of its own.
func (g *PodGates) completePodResources(s *corev1.PodSpec) {
	r := s.Resources
	if !g.podResources || !g.latePodResources || r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	limits := AggregateContainerResources(s, limitsOf)
	for name, q := range limits {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			setMissing(&r.Limits, name, q)
		}
	}
	for name, q := range AggregateContainerResources(s, requestsOf) {
		if isPodLevelResource(name) && overcommitAllowed(name) {
			setMissing(&r.Requests, name, q)
		}
	}
	for name, q := range r.Limits {
		if isPodLevelResource(name) {
			setMissing(&r.Requests, name, q)
		}
	}
	// A limit of the pod that is missing becomes the total of the containers' limits, if each container has
	// one. It is never smaller than the request.
	for name, request := range r.Requests {
		limit, limited := limits[name]
		if !isPodLevelResource(name) || !limited || !allLimit(s, name) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setMissing(&r.Limits, name, limit)
	}
}

func limitsOf(r *corev1.ResourceRequirements) corev1.ResourceList   { return r.Limits }
func requestsOf(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }

// setMissing sets the quantity of a resource that the list does not have.
func setMissing(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

// allLimit reports whether all containers have a limit of the resource.
func allLimit(s *corev1.PodSpec, name corev1.ResourceName) bool {
	all := true
	eachContainer(s, func(c *corev1.Container) {
		_, ok := c.Resources.Limits[name]
		all = all && ok
	})
	return all
}

// AggregateContainerResources returns the most that the containers of a pod need at one time.
// This is the sum of the regular containers and sidecars or, if larger, an init container
// together with the sidecars that are started before it.
// For example, with a container of 1 CPU, a sidecar of 1 and then an init container of 3, the result is 4: the
// init container runs with the sidecar before the container starts (KEP-753).
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
	total := AggregateContainerResources(s, requestsOf)
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

// isSidecar reports whether an init container is a sidecar. For a regular container, Always does not mean that.
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

// qosClass returns the quality of service class of a new pod. Before PodLevelResourcesFixKubeletQOSClass, resources of the
// pod counted even if they were empty.
func (g *PodGates) qosClass(s *corev1.PodSpec) corev1.PodQOSClass {
	if g.emptyResourcesCount && s.Resources != nil {
		return qosOf(s.Resources)
	}
	return qosClass(s)
}

// qosClass returns the quality of service class of a spec. It depends on the requests and limits of CPU
// and memory of the pod or, if the pod has no resources, of all containers.
// Init containers count, ephemeral containers do not: they have no resources. Containers of different classes
// make the pod Burstable.
func qosClass(s *corev1.PodSpec) corev1.PodQOSClass {
	if hasPodResources(s.Resources) {
		return qosOf(s.Resources)
	}
	class := corev1.PodQOSClass("")
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		switch own := qosOf(&c.Resources); {
		case class == "":
			class = own
		case class != own:
			return corev1.PodQOSBurstable
		}
	}
	return cmp.Or(class, corev1.PodQOSBestEffort)
}

// hasPodResources reports whether the resources of a pod as a whole name one that such resources may have.
func hasPodResources(r *corev1.ResourceRequirements) bool {
	if r == nil {
		return false
	}
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if isPodLevelResource(name) {
				return true
			}
		}
	}
	return false
}

// qosOf returns the class by one set of resources: BestEffort without requests and limits of CPU and memory, Guaranteed if
// both have requests that equal their limits, otherwise Burstable.
// A limit without a request does not occur for containers: the request gets the value of the limit by default.
func qosOf(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	reserved := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		if request.Cmp(limit) != 0 {
			return corev1.PodQOSBurstable
		}
		if !request.IsZero() {
			reserved++
		}
	}
	return []corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}[reserved]
}

// mergeMatchLabelKeys adds requirements for matchLabelKeys and mismatchLabelKeys to the label
// selectors that they belong to, with the values of the pod's own labels.
// So the scheduler needs only the selectors. For example, matchLabelKeys with pod-template-hash spreads the
// pods of one revision of a Deployment (KEP-3243 for topology spread, KEP-3633 for affinity). A key that the
// pod has no label for is left out.
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
