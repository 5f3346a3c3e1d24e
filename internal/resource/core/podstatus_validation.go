package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validatePodStatus validates the addresses in a status, and what it says about containers and claims in the spec. Old
// addresses stay valid.
func (g *PodGates) validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	path, s := field.NewPath("status"), &p.Status
	defer path.Free()
	errs := g.validateNominatedNode(p, old, path.Child("nominatedNodeName"))
	for i := range s.Conditions {
		at, n := path.Child("conditions").Index(i), s.Conditions[i].ObservedGeneration
		errs = append(errs, validateConditionType(s.Conditions[i].Type, at.Child("Type"))...)
		errs = append(errs, field.InvalidIf(n < 0, at.Child("observedGeneration"), n, notNegativeInteger)...)
	}
	errs = append(errs, field.InvalidIf(s.ObservedGeneration < 0, path.Child("observedGeneration"), s.ObservedGeneration,
		notNegativeInteger)...)
	errs = append(errs, validateClaimStatuses(p, path.Child("resourceClaimStatuses"))...)
	errs = append(errs, validateExtendedClaimStatus(p, path.Child("extendedResourceClaimStatus"))...)
	errs = append(errs, validateAllocatableClaims(p, &old.Status, path.Child("nodeAllocatableResourceClaimStatuses"))...)
	errs = append(errs, validateVolumeHealth(p, &old.Status, path.Child("volumeHealth"))...)
	errs = append(errs, g.rules.addresses.validateAddresses(podIPs(s), podIPs(&old.Status), s.PodIPs, path.Child("podIPs"))...)
	if (s.PodIP == "") != (len(s.PodIPs) == 0) {
		errs = append(errs, field.Invalid(path.Child("podIPs"), declare.Internal(s.PodIPs),
			"podIP and podIPs must either both be set or both be unset"))
	}
	errs = append(errs, g.rules.addresses.validateHostIPs(s, &old.Status, path.Child("hostIPs"))...)
	return append(errs, validateContainerStatuses(p, path)...)
}

// validateConditionType requires that the type of a condition is a label key, unless it is one that the system sets.
// Readiness gates of users have their conditions in the same list.
func validateConditionType(t corev1.PodConditionType, path *field.Path) field.ErrorList {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		return nil
	}
	return field.LabelKey(path, string(t))
}

const notNegativeInteger = "must be a non-negative integer"

// validateNominatedNode validates a new nominated node. A pod that has a node cannot get one
// (ClearingNominatedNodeNameAfterBinding).
func (g *PodGates) validateNominatedNode(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	name := p.Status.NominatedNodeName
	if name == "" || name == old.Status.NominatedNodeName {
		return nil
	}
	return field.Join(
		field.DNSSubdomain(path, name),
		field.ForbiddenIf(g.endNomination && old.Spec.NodeName != "", path, "may not be set on pods that are already bound to a node"),
	)
}

func podIPs(s *corev1.PodStatus) []string {
	return declare.Texts(s.PodIPs, func(ip corev1.PodIP) string { return ip.IP })
}

func hostIPs(s *corev1.PodStatus) []string {
	return declare.Texts(s.HostIPs, func(ip corev1.HostIP) string { return ip.IP })
}

// validateHostIPs requires that the first address is hostIP.
func (r AddressRules) validateHostIPs(s, old *corev1.PodStatus, path *field.Path) field.ErrorList {
	if len(s.HostIPs) == 0 {
		return nil
	}
	first := s.HostIPs[0].IP
	errs := field.InvalidIf(first != s.HostIP, path.Index(0).Child("ip"), first, "must be equal to `hostIP`")
	return append(errs, r.validateAddresses(hostIPs(s), hostIPs(old), s.HostIPs, path)...)
}

// validateAddresses allows one address, or one of each family. list is what errors show.
func (r AddressRules) validateAddresses(ips, old []string, list any, path *field.Path) field.ErrorList {
	errs := r.validateIPs(path, ips, old)
	if len(ips) < 2 {
		return errs
	}
	dual, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	if !dual || len(ips) > 2 {
		errs = append(errs, field.Invalid(path, declare.Internal(list), "may specify no more than one IP for each IP family"))
	}
	return errs
}

// validateClaimStatuses requires that each status is of a claim in the spec, and that there is one for each claim.
func validateClaimStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	claims := sets.New[string]()
	for i := range p.Spec.ResourceClaims {
		claims.Insert(p.Spec.ResourceClaims[i].Name)
	}
	seen := sets.New[string]()
	for i, status := range p.Status.ResourceClaimStatuses {
		path := path.Index(i)
		errs = append(errs, field.InvalidIf(!claims.Has(status.Name), path.Child("name"), status.Name,
			"must match the name of an entry in `spec.resourceClaims`")...)
		errs = append(errs, field.Unique(seen, path.Child("name"), status.Name)...)
		errs = append(errs, field.Optional(path.Child("resourceClaimName"), status.ResourceClaimName,
			field.DNSSubdomain)...)
	}
	return errs
}

// validateExtendedClaimStatus validates which requests of a claim stand for the extended resources of containers.
// The scheduler makes such a claim for resources like example.com/gpu that a DRA driver provides.
func validateExtendedClaimStatus(p *corev1.Pod, path *field.Path) field.ErrorList {
	s := p.Status.ExtendedResourceClaimStatus
	if s == nil {
		return nil
	}
	errs := field.NotEmptyAnd(path.Child("resourceClaimName"), s.ResourceClaimName, field.DNSSubdomain)
	mappings := path.Child("requestMappings")
	errs = append(errs, field.RequiredIf(len(s.RequestMappings) == 0, mappings,
		"at least one request mapping is required")...)
	seen := sets.New[corev1.ContainerExtendedResourceRequest]()
	for i, m := range s.RequestMappings {
		at := mappings.Index(i)
		errs = append(errs, validateMappedContainer(&p.Spec, &m, at)...)
		// kube-apiserver's path of an invalid name has no index.
		errs = append(errs, field.DNSLabel(path.Child("requestName"), m.RequestName)...)
		if seen.Has(m) {
			errs = append(errs, field.Duplicate(at.Child("containerName"), m.ContainerName),
				field.Duplicate(at.Child("resourceName"), m.ResourceName), field.Duplicate(at.Child("requestName"), m.RequestName))
		}
		seen.Insert(m)
	}
	return errs
}

// validateMappedContainer requires that a container of that name requests the resource.
func validateMappedContainer(s *corev1.PodSpec, m *corev1.ContainerExtendedResourceRequest, at *field.Path) field.ErrorList {
	const in = "of an entry in spec.initContainers%[1]s or spec.containers%[1]s"
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		c := containerNamed(list, m.ContainerName)
		if c == nil {
			continue
		}
		if _, ok := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; ok {
			return nil
		}
		return field.ErrorList{field.Invalid(at.Child("resourceName"), m.ResourceName,
			fmt.Sprintf("must match the extended resource name "+in, ".resources.requests"))}
	}
	return field.ErrorList{field.Invalid(at.Child("containerName"), m.ContainerName,
		fmt.Sprintf("must match the name "+in, ".name"))}
}

func containerNamed(list []corev1.Container, name string) *corev1.Container {
	if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// validateContainerStatuses validates the users and the allocated resources of containers.
// Ephemeral containers have no resources, so their statuses have none either. A status of a container that the
// spec does not have is valid.
func validateContainerStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []struct {
		name       string
		statuses   []corev1.ContainerStatus
		containers []corev1.Container
	}{
		{"containerStatuses", p.Status.ContainerStatuses, p.Spec.Containers},
		{"initContainerStatuses", p.Status.InitContainerStatuses, p.Spec.InitContainers},
		{"ephemeralContainerStatuses", p.Status.EphemeralContainerStatuses, nil},
	} {
		for i := range part.statuses {
			s, at := &part.statuses[i], path.Child(part.name).Index(i)
			if s.User != nil && s.User.Linux != nil {
				errs = append(errs, validateLinuxUser(s.User.Linux, p.Spec.OS, at.Child("user", "linux"))...)
			}
			at = at.Child("allocatedResourcesStatus")
			if part.name == "ephemeralContainerStatuses" {
				errs = append(errs, field.ForbiddenIf(s.AllocatedResourcesStatus != nil, at,
					"must not be specified in container status")...)
				continue
			}
			errs = append(errs, validateAllocated(s.AllocatedResourcesStatus, containerNamed(part.containers, s.Name),
				p.Status.ExtendedResourceClaimStatus, at)...)
		}
	}
	return errs
}

// validateLinuxUser validates the user that the runtime reports for the first process of a container
// (KEP-3619).
func validateLinuxUser(u *corev1.LinuxContainerUser, os *corev1.PodOS, at *field.Path) field.ErrorList {
	if os != nil && os.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(at, "cannot be set for a windows pod")}
	}
	// Unlike the user that a spec asks for, the user of a running container may have any ID.
	errs := field.InvalidIf(u.UID < 0 || u.UID > math.MaxUint32, at.Child("uid"), u.UID,
		fmt.Sprintf("must be between 0 and %d, inclusive", math.MaxUint32))
	errs = append(errs, groupID(at.Child("gid"), u.GID)...)
	return append(errs, field.EachValue(at.Child("supplementalGroups"), u.SupplementalGroups, groupID)...)
}

// validateAllocated validates the health of the resources of a container. c is nil if the pod has no such container:
// then the names of the resources are not validated. extended has the claim for the extended resources of the pod.
// The health is reported by device plug-ins and DRA drivers (KEP-4680).
func validateAllocated(
	list []corev1.ResourceStatus, c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		at := path.Index(i)
		if c != nil {
			errs = append(errs, validateAllocatedName(list[i].Name, c, extended, at.Child("name"))...)
		}
		seen := sets.New[corev1.ResourceID]()
		for j, r := range list[i].Resources {
			at := at.Child("resources").Index(j)
			errs = append(errs, field.OneOf(at.Child("health"), r.Health, corev1.ResourceHealthStatusHealthy,
				corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
			if r.Message != nil {
				errs = append(errs, field.RequiredIf(*r.Message == "", at.Child("message"), "must be non-empty if specified")...)
				errs = append(errs, field.MaxLength(at.Child("message"), *r.Message, corev1.ResourceHealthMessageMaxLength)...)
			}
			errs = append(errs, field.Unique(seen, at.Child("resourceID"), r.ResourceID)...)
		}
	}
	return errs
}

// validateAllocatedName requires that the container requests the resource, the claim, or an extended resource that is
// mapped to the claim.
// Names of claims have the prefix claim:. For example, claim:gpus stands for all requests of the claim gpus,
// and claim:gpus/one for its request one.
func validateAllocatedName(
	name corev1.ResourceName, c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, at *field.Path,
) field.ErrorList {
	const prefix = "claim:"
	claim, isClaim := strings.CutPrefix(string(name), prefix)
	if !isClaim {
		if _, ok := c.Resources.Requests[name]; ok {
			return nil
		}
		return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource requests")}
	}
	for _, r := range c.Resources.Claims {
		if claim == r.Name && r.Request == "" || r.Request != "" && claim == r.Name+"/"+r.Request {
			return nil
		}
	}
	if isMappedClaim(claim, c, extended) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource claims as "+
		"'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it "+
		"is empty")}
}

// isMappedClaim reports whether claim, which is claim/request, stands for an extended resource of the container.
func isMappedClaim(claim string, c *corev1.Container, s *corev1.PodExtendedResourceClaimStatus) bool {
	name, request, _ := strings.Cut(claim, "/")
	if s == nil || name == "" || request == "" || name != s.ResourceClaimName {
		return false
	}
	return slices.ContainsFunc(s.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		q := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		return m.ContainerName == c.Name && m.RequestName == request && !q.IsZero()
	})
}

// validateAllocatableClaims validates which resources of the node the claims of a pod use. Entries that old has too must still
// name a claim of the pod and have valid quantities; the other rules apply to new and changed entries only.
func validateAllocatableClaims(p *corev1.Pod, old *corev1.PodStatus, path *field.Path) field.ErrorList {
	list, before := p.Status.NodeAllocatableResourceClaimStatuses, old.NodeAllocatableResourceClaimStatuses
	var errs field.ErrorList
	for i := range list {
		if c := &list[i]; c.ResourceClaimName != "" {
			errs = append(errs, field.InvalidIf(!refersToClaim(p, c.ResourceClaimName), path.Index(i).Child("resourceClaimName"),
				c.ResourceClaimName, "no mapping found in pod reference")...)
			errs = append(errs, validateAllocatableQuantities(c, path.Index(i))...)
		}
	}
	if equality.Semantic.DeepEqual(list, before) {
		return errs
	}
	for i := range list {
		same := func(c corev1.NodeAllocatableResourceClaimStatus) bool {
			return c.ResourceClaimName == list[i].ResourceClaimName
		}
		errs = append(errs, field.DuplicateIf(slices.ContainsFunc(list[:i], same), path.Index(i), list[i])...)
		if k := slices.IndexFunc(before, same); k < 0 || !equality.Semantic.DeepEqual(before[k], list[i]) {
			errs = append(errs, validateAllocatableClaim(&list[i], path.Index(i))...)
		}
	}
	return errs
}

// refersToClaim reports whether a pod uses a ResourceClaim, by its name or by a template.
func refersToClaim(p *corev1.Pod, name string) bool {
	is := func(claim *string) bool { return claim != nil && *claim == name }
	return slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return is(c.ResourceClaimName) }) ||
		slices.ContainsFunc(p.Status.ResourceClaimStatuses,
			func(c corev1.PodResourceClaimStatus) bool { return is(c.ResourceClaimName) })
}

func validateAllocatableQuantities(c *corev1.NodeAllocatableResourceClaimStatus, path *field.Path) field.ErrorList {
	name := func(at *field.Path, name corev1.ResourceName) field.ErrorList {
		return field.InvalidIf(!isPodLevelResource(name), at, name, "must be a node allocatable resource name")
	}
	quantity := func(at *field.Path, q *resource.Quantity) field.ErrorList {
		if q == nil || q.Sign() >= 0 {
			return nil
		}
		return field.ErrorList{field.Invalid(at, q.String(), "must be non-negative")}
	}
	var errs field.ErrorList
	for i, m := range c.Mapping {
		at := path.Child("mapping").Index(i)
		errs = append(errs, field.Join(name(at.Child("name"), m.Name), quantity(at.Child("quantity"), m.Quantity))...)
	}
	for i, o := range c.Overhead {
		at := path.Child("overhead").Index(i)
		errs = append(errs, field.Join(name(at.Child("name"), o.Name),
			field.InvalidIf(o.PerPod == nil && o.PerContainer == nil, at, "", "at least one of perPod or perContainer must be set"),
			quantity(at.Child("perPod"), o.PerPod), quantity(at.Child("perContainer"), o.PerContainer))...)
	}
	return errs
}

func validateAllocatableClaim(c *corev1.NodeAllocatableResourceClaimStatus, path *field.Path) field.ErrorList {
	errs := field.NotEmpty(path.Child("resourceClaimName"), c.ResourceClaimName)
	containers := sets.New[string]()
	for i, name := range c.Containers {
		errs = append(errs, field.Unique(containers, path.Child("containers").Index(i), name)...)
	}
	for i, m := range c.Mapping {
		at := path.Child("mapping").Index(i)
		same := func(o corev1.NodeAllocatableMappedResources) bool { return o.Name == m.Name }
		errs = append(errs, field.DuplicateIf(slices.ContainsFunc(c.Mapping[:i], same), at, m)...)
		errs = append(errs, field.NotEmpty(at.Child("name"), m.Name)...)
		errs = append(errs, field.RequiredIf(m.Quantity == nil, at.Child("quantity"), "")...)
	}
	for i, o := range c.Overhead {
		at := path.Child("overhead").Index(i)
		same := func(other corev1.NodeAllocatableOverheadResources) bool { return other.Name == o.Name }
		errs = append(errs, field.DuplicateIf(slices.ContainsFunc(c.Overhead[:i], same), at, o)...)
		errs = append(errs, field.NotEmpty(at.Child("name"), o.Name)...)
	}
	return errs
}

// validateVolumeHealth validates what the drivers of a pod's volumes report about them (KEP-1432). See validateVolumeConditions
// for conditions that old has too.
func validateVolumeHealth(p *corev1.Pod, old *corev1.PodStatus, path *field.Path) field.ErrorList {
	list, before := p.Status.VolumeHealth, old.VolumeHealth
	var errs field.ErrorList
	for i := range list {
		known := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == list[i].Name })
		if list[i].Name != "" && !known {
			errs = append(errs, field.NotFound(path.Index(i).Child("name"), list[i].Name))
		}
		same := func(h corev1.PodVolumeHealth) bool { return h.Name == list[i].Name }
		errs = append(errs, field.DuplicateIf(slices.ContainsFunc(list[:i], same), path.Index(i), list[i])...)
		var conditions []corev1.VolumeHealthCondition
		k := slices.IndexFunc(before, same)
		if k >= 0 {
			conditions = before[k].HealthConditions
		}
		errs = append(errs, field.NotEmpty(path.Index(i).Child("name"), list[i].Name)...)
		errs = append(errs,
			validateVolumeConditions(list[i].HealthConditions, conditions, path.Index(i).Child("healthConditions"))...)
	}
	return errs
}

// validateVolumeConditions validates the conditions of a volume. Those in old are valid.
// The form of a reason is checked in old conditions too. Several conditions may have the same status with
// different reasons.
func validateVolumeConditions(list, old []corev1.VolumeHealthCondition, path *field.Path) field.ErrorList {
	const most, longestReason, longestMessage = 16, 256, 1024
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, field.IfSet(path.Index(i).Child("reason"), list[i].Reason,
			func(at *field.Path, reason string) field.ErrorList {
				return field.Messages(at, reason, metav1validation.IsValidConditionReason(reason))
			})...)
	}
	if equality.Semantic.DeepEqual(list, old) {
		return errs
	}
	if tooMany := field.MaxItems(path, len(list), most); len(tooMany) > 0 {
		return append(errs, tooMany...)
	}
	for i := range list {
		c, at := &list[i], path.Index(i)
		errs = append(errs, field.DuplicateIf(slices.ContainsFunc(list[:i], func(o corev1.VolumeHealthCondition) bool {
			return o.Status == c.Status && o.Reason == c.Reason
		}), at, *c)...)
		if slices.Contains(old, *c) {
			continue
		}
		errs = append(errs, field.RequiredOneOf(at.Child("status"), c.Status, corev1.VolumeHealthDataLoss,
			corev1.VolumeHealthDegraded, corev1.VolumeHealthInaccessible)...)
		errs = append(errs, field.NotEmpty(at.Child("reason"), c.Reason)...)
		errs = append(errs, field.MaxLength(at.Child("reason"), c.Reason, longestReason)...)
		errs = append(errs, field.MaxLength(at.Child("message"), c.Message, longestMessage)...)
	}
	return errs
}

// warnPodStatus returns the warnings about the notation of the addresses in a status.
func warnPodStatus(s *corev1.PodStatus) []string {
	var warnings []string
	path := field.NewPath("status")
	for i, ip := range s.PodIPs {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("podIPs").Index(i).Child("ip").K8s(), ip.IP)...)
	}
	for i, ip := range s.HostIPs {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("hostIPs").Index(i).Child("ip").K8s(), ip.IP)...)
	}
	return warnings
}
