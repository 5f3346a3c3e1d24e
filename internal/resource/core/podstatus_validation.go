package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validatePodStatus validates the addresses in a status, and what it says about containers and claims in the spec. Old
// addresses stay valid.
func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	path, s := field.NewPath("status"), &p.Status
	defer path.Free()
	errs := validateNominatedNode(p, path.Child("nominatedNodeName"))
	for i := range s.Conditions {
		at, n := path.Child("conditions").Index(i), s.Conditions[i].ObservedGeneration
		errs = append(errs, validateConditionType(s.Conditions[i].Type, at.Child("Type"))...)
		errs = append(errs, field.InvalidIf(n < 0, at.Child("observedGeneration"), n, notNegativeInteger)...)
	}
	errs = append(errs, field.InvalidIf(s.ObservedGeneration < 0, path.Child("observedGeneration"), s.ObservedGeneration,
		notNegativeInteger)...)
	errs = append(errs, validateClaimStatuses(p, path.Child("resourceClaimStatuses"))...)
	errs = append(errs, validateExtendedClaimStatus(p, path.Child("extendedResourceClaimStatus"))...)
	errs = append(errs, validateAddresses(podIPs(s), podIPs(&old.Status), s.PodIPs, path.Child("podIPs"))...)
	errs = append(errs, validateHostIPs(s, &old.Status, path.Child("hostIPs"))...)
	return append(errs, validateContainerStatuses(p, path)...)
}

// validateConditionType requires that the type of a condition is a label key, unless it is one that the system sets.
func validateConditionType(t corev1.PodConditionType, path *field.Path) field.ErrorList {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		return nil
	}
	return field.LabelKey(path, string(t))
}

const notNegativeInteger = "must be a non-negative integer"

// validateNominatedNode allows a nominated node for pods that have no node yet.
func validateNominatedNode(p *corev1.Pod, path *field.Path) field.ErrorList {
	name := p.Status.NominatedNodeName
	if name == "" {
		return nil
	}
	return field.Join(
		field.DNSSubdomain(path, name),
		field.ForbiddenIf(p.Spec.NodeName != "", path, "may not be set on pods that are already bound to a node"),
	)
}

func podIPs(s *corev1.PodStatus) []string {
	return declare.Texts(s.PodIPs, func(ip corev1.PodIP) string { return ip.IP })
}

func hostIPs(s *corev1.PodStatus) []string {
	return declare.Texts(s.HostIPs, func(ip corev1.HostIP) string { return ip.IP })
}

// validateHostIPs requires that the first address is hostIP.
func validateHostIPs(s, old *corev1.PodStatus, path *field.Path) field.ErrorList {
	if len(s.HostIPs) == 0 {
		return nil
	}
	first := s.HostIPs[0].IP
	errs := field.InvalidIf(first != s.HostIP, path.Index(0).Child("ip"), first, "must be equal to `hostIP`")
	return append(errs, validateAddresses(hostIPs(s), hostIPs(old), s.HostIPs, path)...)
}

// validateAddresses allows one address, or one of each family. list is what errors show.
func validateAddresses(ips, old []string, list any, path *field.Path) field.ErrorList {
	errs := validateIPs(path, ips, old)
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
			errs = append(errs, validateAllocated(s.AllocatedResourcesStatus, containerNamed(part.containers, s.Name), at)...)
		}
	}
	return errs
}

func validateLinuxUser(u *corev1.LinuxContainerUser, os *corev1.PodOS, at *field.Path) field.ErrorList {
	if os != nil && os.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(at, "cannot be set for a windows pod")}
	}
	errs := userID(at.Child("uid"), u.UID)
	errs = append(errs, groupID(at.Child("gid"), u.GID)...)
	return append(errs, field.EachValue(at.Child("supplementalGroups"), u.SupplementalGroups, groupID)...)
}

// validateAllocated validates the health of the resources of a container. c is nil if the pod has no such container:
// then the names of the resources are not validated.
func validateAllocated(list []corev1.ResourceStatus, c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		at := path.Index(i)
		if c != nil {
			errs = append(errs, validateAllocatedName(list[i].Name, c, at.Child("name"))...)
		}
		seen := sets.New[corev1.ResourceID]()
		for j, r := range list[i].Resources {
			at := at.Child("resources").Index(j)
			errs = append(errs, field.OneOf(at.Child("health"), r.Health, corev1.ResourceHealthStatusHealthy,
				corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
			errs = append(errs, field.Unique(seen, at.Child("resourceID"), r.ResourceID)...)
		}
	}
	return errs
}

// validateAllocatedName requires that the container requests the resource or the claim.
func validateAllocatedName(name corev1.ResourceName, c *corev1.Container, at *field.Path) field.ErrorList {
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
	return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource claims in a format "+
		"'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")}
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
