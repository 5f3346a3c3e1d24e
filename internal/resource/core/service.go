package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func services(gates features.Gates) *registry.Kind {
	addresses, validateName := NewAddressRules(gates), apivalidation.NameIsDNS1035Label
	// KEP-5311 relaxes the rule of RFC 1035, which allows only a letter at the beginning.
	if gates.Enabled(features.RelaxedServiceNameValidation) { // the name may begin with a digit
		validateName = apivalidation.NameIsDNSLabel
	}
	spec := corev1.ServiceSpec{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "services", Name: "Service", ShortNames: []string{"svc"},
			Categories: []string{"all"}, Namespaced: true,
		},
		Versions: onlyV1[corev1.Service](defaultService),
		Storage:  registry.Storage{Version: "v1", Path: "services/specs"},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true, ReturnDeleted: true},
		Metadata: registry.Metadata{ValidateName: validateName},
		Finalizers: []registry.Finalizer{
			{
				Name:    "service.kubernetes.io/load-balancer-cleanup",
				Remover: "the service controller of the cloud-controller-manager", When: "when the load balancer is deleted",
			},
		},
		Subresources: []registry.Subresource{
			serviceProxy(),
			declare.Status(),
		},
		Selection: registry.Selection{
			Fields: []registry.Field{
				{Name: "spec.clusterIP", Path: []int32{2, 3}},
				{Name: "spec.type", Path: []int32{2, 4}},
			},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*corev1.Service]{
			PrepareCreate: func(s *corev1.Service) {
				inferAddressFields(s)
				dropInternalTraffic(s)
			},
			PrepareUpdate:        prepareServiceUpdate,
			ValidateCreate:       func(o *corev1.Service) field.ErrorList { return addresses.validateService(o, nil) },
			ValidateUpdate:       addresses.validateServiceUpdate,
			ValidateStatusUpdate: addresses.validateServiceStatus,
			Warn:                 serviceWarnings,
			WarnStatus: func(s *corev1.Service) []string {
				var warnings []string
				for i, one := range s.Status.LoadBalancer.Ingress {
					warnings = append(warnings, WarnIngressAddress(i, one.IP)...)
				}
				return warnings
			},
		}.Untyped(),
		Table: registry.Table[*corev1.Service]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Type", "string", spec["type"]),
				table.Column("Cluster-IP", "string", spec["clusterIP"]),
				table.Column("External-IP", "string", spec["externalIPs"]),
				table.Column("Port(s)", "string", spec["ports"]),
				table.Age,
				table.Wide("Selector", "string", spec["selector"]),
			},
			Cells: serviceCells,
		}.Untyped(),
	}
}

// defaultService sets defaults by the type of the Service; fields that the type does not have stay unset. The
// timeout of the session affinity is in seconds; its default is 10800, which is 3 hours.
func defaultService(s *corev1.Service) {
	spec := &s.Spec
	declare.Value(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			timeout := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
		}
	}
	declare.Value(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		declare.Value(&p.Protocol, corev1.ProtocolTCP)
		// Pods are expected to listen on the port of the Service.
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if hasExternalTraffic(s) {
		declare.Value(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if hasClusterIP(s) {
		declare.Pointer(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	declare.Pointer(&spec.AllocateLoadBalancerNodePorts, true)
	for i := range s.Status.LoadBalancer.Ingress {
		if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
			declare.Pointer(&in.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

// hasClusterIP reports whether Services of this type have cluster IPs. A headless Service counts too: its
// cluster IP is None.
func hasClusterIP(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

// hasExternalTraffic reports whether traffic from outside of the cluster can reach the Service, so that it
// needs an externalTrafficPolicy.
func hasExternalTraffic(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	}
	return s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// hasHealthCheckPort reports whether the Service needs a port where a load balancer asks nodes if they have
// endpoints. With the policy Cluster, each node forwards to all endpoints, so there is nothing to ask.
func hasHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// inferAddressFields sets clusterIPs, ipFamilies and ipFamilyPolicy as far as they follow from
// the cluster IP that the client has chosen.
// The allocator of addresses sets what does not follow from the request. See KEP-563 for the fields of both
// families.
func inferAddressFields(s *corev1.Service) {
	spec := &s.Spec
	ip := netutils.ParseIPSloppy(spec.ClusterIP)
	if !hasClusterIP(s) || ip == nil || len(spec.ClusterIPs) > 1 {
		return
	}
	if len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if len(spec.IPFamilies) == 0 {
		family := corev1.IPv4Protocol
		if netutils.IsIPv6(ip) {
			family = corev1.IPv6Protocol
		}
		spec.IPFamilies = []corev1.IPFamily{family}
	}
	declare.Pointer(&spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack)
}

// prepareServiceUpdate lets a client change the type of a Service by changing only the field
// type. It removes the fields that only the old type had, if the client has not changed them.
// For example, kubectl patch with the type ClusterIP would otherwise fail, because the Service still has the
// node ports that the server allocated. A field that the client has changed stays, and validation refuses it.
func prepareServiceUpdate(s, old *corev1.Service) {
	spec, before := &s.Spec, &old.Spec
	dropInternalTraffic(s)
	if before.Type != corev1.ServiceTypeExternalName && spec.Type == corev1.ServiceTypeExternalName {
		dropUnchangedAddresses(spec, before)
	}
	if mayHaveNodePorts(old) && !mayHaveNodePorts(s) && sameNodePorts(s, old) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if hasHealthCheckPort(old) && !hasHealthCheckPort(s) && spec.HealthCheckNodePort == before.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	wasLoadBalancer, isLoadBalancer := before.Type == corev1.ServiceTypeLoadBalancer,
		spec.Type == corev1.ServiceTypeLoadBalancer
	if wasLoadBalancer && !isLoadBalancer {
		if ptr.Equal(spec.AllocateLoadBalancerNodePorts, before.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(spec.LoadBalancerClass, before.LoadBalancerClass) {
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

// dropUnchangedAddresses removes the cluster IPs if the client has not changed them.
func dropUnchangedAddresses(spec, before *corev1.ServiceSpec) {
	if spec.ClusterIP == before.ClusterIP && slices.Equal(spec.ClusterIPs, before.ClusterIPs) {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if slices.Equal(spec.IPFamilies, before.IPFamilies) {
		spec.IPFamilies = nil
	}
	if ptr.Equal(spec.IPFamilyPolicy, before.IPFamilyPolicy) {
		spec.IPFamilyPolicy = nil
	}
}

// dropInternalTraffic removes internalTrafficPolicy from a Service of type ExternalName. Older
// versions set it as a default.
func dropInternalTraffic(s *corev1.Service) {
	p := s.Spec.InternalTrafficPolicy
	if s.Spec.Type == corev1.ServiceTypeExternalName && p != nil &&
		(*p == corev1.ServiceInternalTrafficPolicyCluster || *p == corev1.ServiceInternalTrafficPolicyLocal) {
		s.Spec.InternalTrafficPolicy = nil
	}
}

// mayHaveNodePorts reports whether Services of this type have node ports. With allocateLoadBalancerNodePorts:
// false (KEP-1864), a load balancer needs none, but may name some.
func mayHaveNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// sameNodePorts reports whether all node ports of s are also in old.
func sameNodePorts(s, old *corev1.Service) bool {
	had := map[int32]bool{0: true}
	for _, p := range old.Spec.Ports {
		had[p.NodePort] = true
	}
	for _, p := range s.Spec.Ports {
		if !had[p.NodePort] {
			return false
		}
	}
	return true
}

func serviceCells(s *corev1.Service) []any {
	ip := table.None
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
		s.Name, string(s.Spec.Type), ip, externalIPs(s), table.OrNone(strings.Join(ports, ",")),
		table.AgeOf(s.CreationTimestamp), table.Labels(s.Spec.Selector),
	}
}

func externalIPs(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return table.OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var balancers []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			if address := cmp.Or(in.IP, in.Hostname); address != "" {
				balancers = append(balancers, address)
			}
		}
		slices.Sort(balancers)
		all := append(slices.Compact(balancers), s.Spec.ExternalIPs...)
		if len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	}
	return table.Unknown
}

func serviceWarnings(s, _ *corev1.Service) []string {
	spec, path := &s.Spec, field.NewPath("spec")
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	external := spec.Type == corev1.ServiceTypeExternalName
	var warnings []string
	warn := func(when bool, text string) {
		if when {
			warnings = append(warnings, text)
		}
	}
	_, hints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	warn(hints, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
		corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		warnings = append(warnings, field.WarnEach(path.Child("clusterIPs"), spec.ClusterIPs, validation.GetWarningsForIP)...)
	}
	warn(headless && spec.LoadBalancerIP != "",
		"spec.loadBalancerIP is ignored for headless services") //nolint:staticcheck // deprecated, still served
	warn(headless && len(spec.ExternalIPs) > 0, "spec.externalIPs is ignored for headless services")
	warn(headless && spec.SessionAffinity != corev1.ServiceAffinityNone,
		"spec.SessionAffinity is ignored for headless services")
	warnings = append(warnings, field.WarnEach(path.Child("externalIPs"), spec.ExternalIPs, validation.GetWarningsForIP)...)
	warn(len(spec.ExternalIPs) > 0 && !headless && !external,
		"spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	if ip := spec.LoadBalancerIP; netutils.ParseIPSloppy(ip) != nil { //nolint:staticcheck // deprecated, still served
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("loadBalancerIP").K8s(), ip)...)
	}
	warnings = append(warnings, field.WarnEach(path.Child("loadBalancerSourceRanges"), spec.LoadBalancerSourceRanges,
		validation.GetWarningsForCIDR)...)
	warn(external && len(spec.ExternalIPs) > 0, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	warn(!external && spec.ExternalName != "", `spec.externalName is ignored when spec.type is not "ExternalName"`)
	d := spec.TrafficDistribution
	warn(d != nil && *d == corev1.ServiceTrafficDistributionPreferClose,
		`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	return warnings
}

// WarnIngressAddress returns the warnings about an address of a load balancer in a status.
func WarnIngressAddress(index int, ip string) []string {
	if ip == "" {
		return nil
	}
	return validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(index).K8s(), ip)
}
