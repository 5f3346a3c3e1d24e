package serviceallocator

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The type of a Service determines which fields it has; see the documentation of ServiceSpec.

func isExternalName(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeExternalName }

func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func hasClusterIPs(s *corev1.Service) bool { return !isExternalName(s) && !isHeadless(s) }

func mayHaveNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts reports whether each port needs a node port.
func wantsNodePorts(s *corev1.Service) bool {
	allocate := s.Spec.AllocateLoadBalancerNodePorts
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(allocate == nil || *allocate)
}

func wantsHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// nodePorts returns the node ports of a Service, with duplicates.
func nodePorts(s *corev1.Service) []int {
	var ports []int
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports = append(ports, int(p.NodePort))
		}
	}
	return ports
}

func healthCheckPort(s *corev1.Service) []int {
	if p := s.Spec.HealthCheckNodePort; wantsHealthCheckPort(s) && p > 0 {
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

// dualStackPreferenceUnchanged reports whether a Service with policy PreferDualStack keeps its addresses and
// families. If it does, its families stay as they were when the Service was created, even if the cluster has other
// families now.
func dualStackPreferenceUnchanged(svc, old *corev1.Service) bool {
	is, was := &svc.Spec, &old.Spec
	prefers := func(p *corev1.IPFamilyPolicy) bool { return *p == corev1.IPFamilyPolicyPreferDualStack }
	return is.IPFamilyPolicy != nil && is.Type == was.Type && !isExternalName(svc) &&
		prefers(is.IPFamilyPolicy) && (was.IPFamilyPolicy == nil || prefers(was.IPFamilyPolicy)) &&
		slices.Equal(is.ClusterIPs, was.ClusterIPs) && slices.Equal(is.IPFamilies, was.IPFamilies)
}

// setOldDefaults sets the fields for IP families in a stored Service that was written before Services had these
// fields.
func (s *Services) setOldDefaults(svc *corev1.Service) {
	spec := &svc.Spec
	syncClusterIPs(svc, nil)
	if isExternalName(svc) || len(spec.IPFamilies) > 0 {
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

// syncClusterIPs updates clusterIPs if the client has only set clusterIP. Older clients do not know clusterIPs.
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

// keepAllocatedFields sets allocated fields that are missing in an update to their old values,
// because clients that replace the whole object may leave them out.
func keepAllocatedFields(svc, old *corev1.Service) {
	is, was := &svc.Spec, &old.Spec
	if !isExternalName(svc) && !isExternalName(old) {
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
	if wantsHealthCheckPort(svc) && wantsHealthCheckPort(old) && is.HealthCheckNodePort == 0 {
		is.HealthCheckNodePort = was.HealthCheckNodePort
	}
}

// keepNodePorts sets missing node ports to the old node port of the port with the same name, unless another port
// of the Service has it now.
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
