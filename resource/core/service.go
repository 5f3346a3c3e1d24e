package core

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
)

func services() *registry.Kind {
	spec := corev1.ServiceSpec{}.SwaggerDoc()
	return &registry.Kind{
		Package: "core", Resource: "services", Singular: "service", Name: "Service",
		ShortNames: []string{"svc"}, Categories: []string{"all"}, Namespaced: true,
		Versions: onlyV1(func() *corev1.Service { return &corev1.Service{} }, defaultService),
		Storage:  "v1", StoragePath: "services/specs",
		CreateOnUpdate: true, UnconditionalUpdate: true, ReturnDeleted: true,
		Subresources: []registry.Subresource{
			{Name: "proxy", GVK: corev1.SchemeGroupVersion.WithKind("ServiceProxyOptions"), Verbs: proxyVerbs, Unserved: true},
			statusSubresource(),
		},
		Fields: []registry.Field{
			{Name: "spec.clusterIP", Path: []int32{2, 3}},
			{Name: "spec.type", Path: []int32{2, 4}},
		},
		FieldError: labelNotSupported,
		// Service names may begin with a digit, since 1.36.
		ValidateName: apivalidation.NameIsDNSLabel,
		Columns: []metav1.TableColumnDefinition{
			NameColumn,
			column("Type", "string", spec["type"]),
			column("Cluster-IP", "string", spec["clusterIP"]),
			column("External-IP", "string", spec["externalIPs"]),
			column("Port(s)", "string", spec["ports"]),
			AgeColumn,
			wideColumn("Selector", "string", spec["selector"]),
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*corev1.Service]{
			Validate:       func(_ context.Context, o *corev1.Service) field.ErrorList { return validateService(o) },
			ValidateUpdate: func(_ context.Context, o, old *corev1.Service) field.ErrorList { return validateServiceUpdate(o, old) },
			Spec:           func(s *corev1.Service) any { return &s.Spec },
			Status:         func(s *corev1.Service) any { return &s.Status },
			PrepareCreate:  func(_ context.Context, s *corev1.Service) { completeAddresses(s) },
			PrepareUpdate:  prepareServiceUpdate,
			Warn:           func(_ context.Context, s, _ *corev1.Service) []string { return serviceWarnings(s) },
			Cells:          serviceCells,
		}),
	}
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			timeout := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
		}
	}
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		setDefault(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if hasExternalTraffic(s) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if hasClusterIP(s) {
		setDefaultPointer(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	setDefaultPointer(&spec.AllocateLoadBalancerNodePorts, true)
	for i := range s.Status.LoadBalancer.Ingress {
		if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
			setDefaultPointer(&in.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

func hasClusterIP(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

func hasExternalTraffic(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	}
	return s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

func hasNodePorts(s *corev1.Service) bool {
	if s.Spec.Type == corev1.ServiceTypeNodePort {
		return true
	}
	allocate := s.Spec.AllocateLoadBalancerNodePorts
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && (allocate == nil || *allocate)
}

func hasHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// completeAddresses fills in what an address that the client chose says by itself:
// that it is the only one, and of which family.
func completeAddresses(s *corev1.Service) {
	spec := &s.Spec
	ip, err := netip.ParseAddr(spec.ClusterIP)
	if !hasClusterIP(s) || err != nil || len(spec.ClusterIPs) > 1 {
		return
	}
	if len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if len(spec.IPFamilies) == 0 {
		family := corev1.IPv4Protocol
		if ip.Is6() {
			family = corev1.IPv6Protocol
		}
		spec.IPFamilies = []corev1.IPFamily{family}
	}
	setDefaultPointer(&spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack)
}

// prepareServiceUpdate lets a service change its type by naming the type alone:
// what only the old type had, and the client left as it was, goes.
func prepareServiceUpdate(_ context.Context, s, old *corev1.Service) {
	spec, before := &s.Spec, &old.Spec
	keepServiceAllocations(s, old)
	if hasClusterIP(old) && !hasClusterIP(s) && spec.ClusterIP == before.ClusterIP && slices.Equal(spec.ClusterIPs, before.ClusterIPs) {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if hasNodePorts(old) && !hasNodePorts(s) && slices.Equal(nodePorts(s), nodePorts(old)) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if hasHealthCheckPort(old) && !hasHealthCheckPort(s) && spec.HealthCheckNodePort == before.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	wasLoadBalancer, isLoadBalancer := before.Type == corev1.ServiceTypeLoadBalancer, spec.Type == corev1.ServiceTypeLoadBalancer
	if wasLoadBalancer && !isLoadBalancer {
		if samePointer(spec.AllocateLoadBalancerNodePorts, before.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if samePointer(spec.LoadBalancerClass, before.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
	if hasExternalTraffic(old) && !hasExternalTraffic(s) && spec.ExternalTrafficPolicy == before.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if !isLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// keepServiceAllocations fills in what the server allocated and a client that
// writes the whole object may leave out.
func keepServiceAllocations(s, old *corev1.Service) {
	spec, before := &s.Spec, &old.Spec
	if hasClusterIP(s) && hasClusterIP(old) {
		setDefault(&spec.ClusterIP, before.ClusterIP)
		if len(spec.ClusterIPs) == 0 && spec.ClusterIP == before.ClusterIP {
			spec.ClusterIPs = before.ClusterIPs
		}
	}
	if hasNodePorts(s) && hasNodePorts(old) {
		keepNodePorts(spec.Ports, before.Ports)
	}
	if hasHealthCheckPort(s) && hasHealthCheckPort(old) {
		setDefault(&spec.HealthCheckNodePort, before.HealthCheckNodePort)
	}
}

// keepNodePorts gives ports without a node port the one that the same port and
// protocol had, unless another port asks for it.
func keepNodePorts(ports, old []corev1.ServicePort) {
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	had, taken := map[key]int32{}, map[key]bool{}
	for _, p := range old {
		had[key{p.Protocol, p.Port}] = p.NodePort
	}
	for _, p := range ports {
		if p.NodePort != 0 {
			taken[key{p.Protocol, p.NodePort}] = true
		}
	}
	for i := range ports {
		p := &ports[i]
		if p.NodePort != 0 {
			continue
		}
		if n := had[key{p.Protocol, p.Port}]; n != 0 && !taken[key{p.Protocol, n}] {
			p.NodePort = n
			taken[key{p.Protocol, n}] = true
		}
	}
}

func nodePorts(s *corev1.Service) []int32 {
	var out []int32
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, p.NodePort)
		}
	}
	slices.Sort(out)
	return out
}

func samePointer[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func serviceCells(s *corev1.Service) ([]any, []metav1.TableRowCondition) {
	ip := None
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		port := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			port = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		ports = append(ports, port)
	}
	return []any{
		s.Name, string(s.Spec.Type), ip, externalIPs(s), OrNone(strings.Join(ports, ",")),
		Age(s.CreationTimestamp), FormatLabels(s.Spec.Selector),
	}, nil
}

func externalIPs(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var balancers []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				balancers = append(balancers, in.IP)
			} else if in.Hostname != "" {
				balancers = append(balancers, in.Hostname)
			}
		}
		slices.Sort(balancers)
		all := append(slices.Compact(balancers), s.Spec.ExternalIPs...)
		if len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	}
	return Unknown
}

func serviceWarnings(s *corev1.Service) []string {
	var warnings []string
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		if len(s.Spec.ExternalIPs) > 0 {
			warnings = append(warnings, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
		}
	} else if s.Spec.ExternalName != "" {
		warnings = append(warnings, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if len(s.Spec.ExternalIPs) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName {
		warnings = append(warnings, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return warnings
}
