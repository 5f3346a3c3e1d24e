package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podLevel reports whether a resource can be requested for a pod as a whole.
// These are the resources of KEP-2837.
func podLevel(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func hasPodLevel(list corev1.ResourceList) bool {
	for name := range list {
		if podLevel(name) {
			return true
		}
	}
	return false
}

// podRequests returns what a pod requests: the most that its containers need at one time, replaced by what the pod
// requests as a whole, and its overhead.
func podRequests(p *corev1.Pod) corev1.ResourceList {
	infeasible := resizeInfeasible(p)
	total := needs(p, func(c *corev1.Container, s *corev1.ContainerStatus) corev1.ResourceList {
		if s == nil || s.Resources == nil {
			return c.Resources.Requests
		}
		// While a container is resized, it uses the most of what it has, what it was promised and what it asks for.
		most := corev1.ResourceList{}
		raise(most, s.Resources.Requests)
		raise(most, s.AllocatedResources)
		if !infeasible {
			raise(most, c.Resources.Requests)
		}
		return most
	})
	if r := p.Spec.Resources; r != nil {
		replacePodLevel(total, r.Requests)
	}
	Add(total, p.Spec.Overhead)
	return total
}

// podLimits returns the limits of a pod, as podRequests does. Overhead is added only to limits that are set.
// A container without a limit adds nothing to the sum; missing reports such a container if a quota needs the
// limit.
func podLimits(p *corev1.Pod) corev1.ResourceList {
	infeasible := resizeInfeasible(p)
	total := needs(p, func(c *corev1.Container, s *corev1.ContainerStatus) corev1.ResourceList {
		if s == nil || s.Resources == nil {
			return c.Resources.Limits
		}
		most := corev1.ResourceList{}
		raise(most, s.Resources.Limits)
		if !infeasible {
			raise(most, c.Resources.Limits)
		}
		return most
	})
	if r := p.Spec.Resources; r != nil {
		replacePodLevel(total, r.Limits)
	}
	for name, q := range p.Spec.Overhead {
		if limit, ok := total[name]; ok && !limit.IsZero() {
			Add(total, corev1.ResourceList{name: q})
		}
	}
	return total
}

func replacePodLevel(total, list corev1.ResourceList) {
	for name, q := range list {
		if podLevel(name) {
			total[name] = q.DeepCopy()
		}
	}
}

// needs returns the most that the containers of a pod need at one time: the sum of its regular containers and sidecars
// or, if larger, an init container together with the sidecars that are started before it. of is given the status of a
// container that can be resized, nil if there is none.
// For example, with containers that need 2 and 1 CPU, a sidecar with 1, and an init container with 5 that is
// started after the sidecar, the result is max(2+1+1, 5+1) = 6.
func needs(
	p *corev1.Pod, of func(*corev1.Container, *corev1.ContainerStatus) corev1.ResourceList,
) corev1.ResourceList {
	total, sidecars, starting := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		Add(total, of(c, statusOf(p.Status.ContainerStatuses, c.Name)))
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			need := of(c, statusOf(p.Status.InitContainerStatuses, c.Name))
			Add(total, need)
			Add(sidecars, need)
			raise(starting, sidecars)
			continue
		}
		now := corev1.ResourceList{}
		// The status of an init container that is not a sidecar does not count.
		Add(now, of(c, nil))
		Add(now, sidecars)
		raise(starting, now)
	}
	raise(total, starting)
	return total
}

func statusOf(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// resizeInfeasible reports whether the node has refused the resize that the pod's spec asks for.
func resizeInfeasible(p *corev1.Pod) bool {
	i := slices.IndexFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
	return i >= 0 && p.Status.Conditions[i].Reason == corev1.PodReasonInfeasible
}
