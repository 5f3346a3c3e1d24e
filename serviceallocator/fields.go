package serviceallocator

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// What a Service has follows from its type; see the documentation of ServiceSpec.

func isExternal(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeExternalName }

// isNone says that a Service is headless.
func isNone(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func hasAddresses(s *corev1.Service) bool { return !isExternal(s) && !isNone(s) }

func mayHaveNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts says that each port is to have a node port.
func wantsNodePorts(s *corev1.Service) bool {
	allocate := s.Spec.AllocateLoadBalancerNodePorts
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer && (allocate == nil || *allocate)
}

func wantsHealthPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// nodePorts are those that a Service has, as often as it has them.
func nodePorts(s *corev1.Service) []int {
	var ports []int
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports = append(ports, int(p.NodePort))
		}
	}
	return ports
}

func healthPort(s *corev1.Service) []int {
	if p := s.Spec.HealthCheckNodePort; wantsHealthPort(s) && p > 0 {
		return []int{int(p)}
	}
	return nil
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// preferenceKept says that nothing about the addresses of a Service that prefers two
// families changes: it has those that the cluster had when it was made, whatever the
// cluster has now.
func preferenceKept(svc, old *corev1.Service) bool {
	is, was := &svc.Spec, &old.Spec
	prefers := func(p *corev1.IPFamilyPolicy) bool { return *p == corev1.IPFamilyPolicyPreferDualStack }
	return is.IPFamilyPolicy != nil && is.Type == was.Type && !isExternal(svc) &&
		prefers(is.IPFamilyPolicy) && (was.IPFamilyPolicy == nil || prefers(was.IPFamilyPolicy)) &&
		slices.Equal(is.ClusterIPs, was.ClusterIPs) && slices.Equal(is.IPFamilies, was.IPFamilies)
}

// completeOld sets on a stored Service what those from before there were families
// lack.
func (s *Services) completeOld(svc *corev1.Service) {
	spec := &svc.Spec
	syncClusterIPs(svc, nil)
	if isExternal(svc) || len(spec.IPFamilies) > 0 {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case spec.ClusterIP != corev1.ClusterIPNone:
		for _, ip := range spec.ClusterIPs {
			spec.IPFamilies = append(spec.IPFamilies, familyOf(ip))
		}
		if len(spec.IPFamilies) == 2 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
	case len(spec.Selector) == 0:
		policy = corev1.IPFamilyPolicyRequireDualStack
		spec.IPFamilies = []corev1.IPFamily{s.Families[0], otherFamily(s.Families[0])}
	default:
		spec.IPFamilies = []corev1.IPFamily{s.Families[0]}
	}
	spec.IPFamilyPolicy = &policy
}

// syncClusterIPs makes clusterIPs follow clusterIP, which older clients write alone.
func syncClusterIPs(svc, old *corev1.Service) {
	is := &svc.Spec
	if old == nil {
		if is.ClusterIP != "" && len(is.ClusterIPs) == 0 {
			is.ClusterIPs = []string{is.ClusterIP}
		}
		return
	}
	was := &old.Spec
	if len(was.ClusterIPs) > 0 && len(is.ClusterIPs) == 0 && was.ClusterIP == is.ClusterIP {
		is.ClusterIPs = slices.Clone(was.ClusterIPs)
	}
	if was.ClusterIP == is.ClusterIP || !slices.Equal(is.ClusterIPs, was.ClusterIPs) {
		return
	}
	if was.ClusterIP != "" && is.ClusterIP == "" {
		is.ClusterIPs = nil
	} else {
		is.ClusterIPs = []string{is.ClusterIP}
	}
}

// keepAllocated fills in what the server allocated and a client that writes the whole
// object may leave out.
func keepAllocated(svc, old *corev1.Service) {
	is, was := &svc.Spec, &old.Spec
	if !isExternal(svc) && !isExternal(old) {
		if is.ClusterIP == "" {
			is.ClusterIP = was.ClusterIP
		}
		if len(is.ClusterIPs) == 0 {
			is.ClusterIPs = slices.Clone(was.ClusterIPs)
		}
	}
	if wantsNodePorts(svc) && wantsNodePorts(old) {
		keepNodePorts(is.Ports, was.Ports)
	}
	if wantsHealthPort(svc) && wantsHealthPort(old) && is.HealthCheckNodePort == 0 {
		is.HealthCheckNodePort = was.HealthCheckNodePort
	}
}

// keepNodePorts gives ports without a node port the one that the port of the same name
// had, unless another port has it.
func keepNodePorts(ports, old []corev1.ServicePort) {
	has, had, named := map[int32]bool{}, map[int32]bool{}, map[string]int32{}
	for _, p := range ports {
		has[p.NodePort] = p.NodePort != 0
	}
	for _, p := range old {
		had[p.NodePort] = true
		named[p.Name] = p.NodePort
	}
	for i := range ports {
		p := &ports[i]
		if n := named[p.Name]; p.NodePort == 0 && !(has[n] && had[n]) {
			p.NodePort = n
		}
	}
}
