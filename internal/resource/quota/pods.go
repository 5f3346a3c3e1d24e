package quota

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// requestsPrefix begins the names of requests: requests.example.com/gpu.
const requestsPrefix = corev1.DefaultResourceRequestsPrefix

// required are names in a quota that pods have to specify: if a quota limits one of them, every container of a pod
// needs a value for that resource.
var required = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

// podNames are the names of what pods use, without those that are made of names of huge pages and extended resources.
var podNames = append([]corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsEphemeralStorage,
}, required...)

// pods measures what pods request.
type pods struct{ objects Objects }

// tracks implements special. Names of huge pages and of extended resources are made of other names, for example
// hugepages-2Mi, requests.hugepages-2Mi and requests.example.com/gpu. Extended resources have only the form with
// requests., because their requests and limits are always equal.
func (pods) tracks(_ context.Context, name corev1.ResourceName) (bool, error) {
	return slices.Contains(podNames, name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || requestsExtended(name), nil
}

// native reports whether a name is one of Kubernetes itself, not of a device that somebody else defines.
// For example, cpu and kubernetes.io/batch are native, and example.com/gpu is not.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), "kubernetes.io/")
}

// requestsExtended reports whether a quota's name is that of requests of an extended resource.
func requestsExtended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), requestsPrefix) &&
		(!native(name) || strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass))
}

// extended reports whether a container's resource is an extended one.
func extended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return !native(name) && !strings.HasPrefix(string(name), requestsPrefix) &&
		len(validation.IsQualifiedName(requestsPrefix+string(name))) == 0
}

// use counts a pod that runs or will run. One that has ended, or whose deletion takes longer than it may, uses nothing
// but its place among count/pods.
func (po pods) use(_ context.Context, obj registry.Object, used corev1.ResourceList) error {
	p := obj.(*corev1.Pod)
	if !Runs(p, po.objects.Now()) {
		return nil
	}
	Add(used, compute(podRequests(p), podLimits(p)))
	return nil
}

// Runs reports whether a pod uses resources at a time.
func Runs(p *corev1.Pod, now time.Time) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	at, overdue := Overdue(p)
	return !overdue || !now.After(at)
}

// Overdue returns the time at which a pod that is being deleted ceases to use resources although it is still there.
// The deletion timestamp includes the grace period once; a second grace period is added, as kube-apiserver does.
// So a pod on a node that has gone does not fill its quota for ever.
func Overdue(p *corev1.Pod) (time.Time, bool) {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return p.DeletionTimestamp.Add(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second), true
}

// compute returns what requests and limits use, by the names in quotas.
// The names cpu and requests.cpu in a quota mean the same, so both are set.
func compute(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: quantity(1)}
	for name, q := range requests {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name] = q
			used[requestsPrefix+name] = q
		case extended(name):
			used[requestsPrefix+name] = q
		}
	}
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	} {
		if q, ok := limits[name]; ok {
			used["limits."+name] = q
		}
	}
	return used
}

// missing implements special. A container without a request would use nothing of the quota, although it uses the
// node. A pod with resources for the pod as a whole is measured by these, so its containers need none. The
// message groups containers by resource: limits.cpu for: a,b; requests.memory for: b.
func (pods) missing(names []corev1.ResourceName, obj registry.Object) string {
	p := obj.(*corev1.Pod)
	if r := p.Spec.Resources; r != nil && (hasPodLevel(r.Requests) || hasPodLevel(r.Limits)) {
		return ""
	}
	lacking := map[corev1.ResourceName][]string{}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		has := compute(c.Resources.Requests, c.Resources.Limits)
		for _, name := range names {
			if _, ok := has[name]; !ok && slices.Contains(required, name) {
				lacking[name] = append(lacking[name], c.Name)
			}
		}
	}
	var parts []string
	for _, name := range names {
		if containers := lacking[name]; len(containers) > 0 {
			slices.Sort(containers)
			parts = append(parts, string(name)+" for: "+strings.Join(slices.Compact(containers), ","))
		}
	}
	return strings.Join(parts, "; ")
}

func (pods) scoped() bool { return true }

// scopesChanged compares the deadline and the quality of service. Classes and affinity of a pod do not change.
func (pods) scopesChanged(old, obj registry.Object) bool {
	was, is := old.(*corev1.Pod), obj.(*corev1.Pod)
	return Terminating(was) != Terminating(is) || bestEffort(was) != bestEffort(is)
}

// inScope implements special. The scopes come in pairs that exclude each other, except for priority classes and
// affinity. A quota applies to a pod that is in all of its scopes.
func (pods) inScope(s *corev1.ScopedResourceSelectorRequirement, obj registry.Object) (bool, error) {
	p := obj.(*corev1.Pod)
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return Terminating(p), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !Terminating(p), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(p), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(p), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if s.Operator == corev1.ScopeSelectorOpExists {
			return p.Spec.PriorityClassName != "", nil
		}
		return matchesValue(s, p.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(p.Spec.Affinity), nil
	}
	return false, nil
}

// Terminating reports whether a pod is in the scope Terminating: whether it has a deadline.
// The name of the scope misleads: a pod that is being deleted is not in it. The pods of Jobs with a deadline are.
func Terminating(p *corev1.Pod) bool {
	return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
}

// bestEffort reports whether no container of a pod has requests or limits of CPU or memory.
func bestEffort(p *corev1.Pod) bool {
	// The class is computed when a pod is created and does not change later, not even by a resize.
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass == corev1.PodQOSBestEffort
	}
	asks := func(r *corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			if list.Cpu().Sign() > 0 || list.Memory().Sign() > 0 {
				return true
			}
		}
		return false
	}
	if r := p.Spec.Resources; r != nil {
		return !asks(r)
	}
	return !slices.ContainsFunc(slices.Concat(p.Spec.Containers, p.Spec.InitContainers),
		func(c corev1.Container) bool { return asks(&c.Resources) })
}

// crossesNamespaces reports whether a rule of affinity is about pods of other namespaces.
// An empty list and a nil selector mean the namespace of the pod itself. An empty selector means all namespaces.
func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	for _, rules := range []*corev1.PodAffinity{a.PodAffinity, (*corev1.PodAffinity)(a.PodAntiAffinity)} {
		if rules == nil {
			continue
		}
		terms = append(terms, rules.RequiredDuringSchedulingIgnoredDuringExecution...)
		for i := range rules.PreferredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, rules.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm)
		}
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}
