package core

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateService validates a Service. old is nil on create. Addresses that the old Service
// had are not validated again.
// A Service without ports makes sense only if no traffic is forwarded: ExternalName and headless ones. The name
// of an ExternalName may end with a dot.
func (r AddressRules) validateService(s, old *corev1.Service) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	errs := validateTopologyAnnotations(s.Annotations)
	external, balancer := spec.Type == corev1.ServiceTypeExternalName, spec.Type == corev1.ServiceTypeLoadBalancer
	headless := isHeadless(s)
	errs = append(errs, field.RequiredIf(len(spec.Ports) == 0 && !external && !headless, path.Child("ports"), "")...)
	if headless && (balancer || spec.Type == corev1.ServiceTypeNodePort) {
		errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
			fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
	}
	errs = append(errs, field.OneOf(path.Child("type"), spec.Type, corev1.ServiceTypeClusterIP,
		corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)...)
	if external {
		errs = append(errs, field.NotEmptyAnd(path.Child("externalName"), strings.TrimSuffix(spec.ExternalName, "."),
			field.DNSSubdomain)...)
	}
	errs = append(errs, validateServicePorts(s, path.Child("ports"))...)
	errs = append(errs, validateLabels(path.Child("selector"), spec.Selector)...)
	errs = append(errs, validateSessionAffinity(spec, path)...)
	errs = append(errs, r.ValidateServiceIPs(s, old)...)
	errs = append(errs, r.validateExternalIPs(s, old)...)
	errs = append(errs, r.validateSourceRanges(s, old)...)
	errs = append(errs, field.ForbiddenIf(!balancer && spec.AllocateLoadBalancerNodePorts != nil,
		path.Child("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'")...)
	errs = append(errs, validateLoadBalancerClass(spec, path.Child("loadBalancerClass"))...)
	return append(errs, validateTraffic(s, path)...)
}

// validateServicePorts validates ports. Two ports may have the same number with different protocols, such as
// 53/TCP and 53/UDP, and the same node port too. With several ports, each needs a name.
func validateServicePorts(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	ports, nodes := map[key]bool{}, map[key]bool{}
	for i := range s.Spec.Ports {
		p, at := &s.Spec.Ports[i], path.Index(i)
		if len(s.Spec.Ports) > 1 && p.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else if p.Name != "" {
			errs = append(errs, field.DNSLabel(at.Child("name"), p.Name)...)
			errs = append(errs, field.Unique(names, at.Child("name"), p.Name)...)
		}
		errs = append(errs, field.PortNumber(at.Child("port"), p.Port)...)
		errs = append(errs, protocol(at.Child("protocol"), p.Protocol)...)
		errs = append(errs, portNumberOrName(at.Child("targetPort"), p.TargetPort)...)
		errs = append(errs, field.Optional(at.Child("appProtocol"), p.AppProtocol, field.LabelKey)...)
		errs = append(errs, field.ForbiddenIf(p.NodePort != 0 && s.Spec.Type == corev1.ServiceTypeClusterIP,
			at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'")...)
		if k := (key{p.Protocol, p.NodePort}); p.NodePort != 0 {
			errs = append(errs, field.DuplicateIf(nodes[k], at.Child("nodePort"), p.NodePort)...)
			nodes[k] = true
		}
		k := key{p.Protocol, p.Port}
		if ports[k] {
			errs = append(errs, field.Duplicate(at, declare.Internal(corev1.ServicePort{Protocol: p.Protocol, Port: p.Port})))
		}
		ports[k] = true
	}
	return errs
}

// validateSessionAffinity validates the affinity of clients to pods. The timeout is in seconds and at most
// 86400, one day; the message says less than 86400, as in kube-apiserver.
func validateSessionAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if spec.SessionAffinity == "" {
		return field.ErrorList{field.Required(path.Child("sessionAffinity"), "")}
	}
	errs := field.OneOf(path.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityClientIP,
		corev1.ServiceAffinityNone)
	c := spec.SessionAffinityConfig
	switch {
	case spec.SessionAffinity == corev1.ServiceAffinityNone && c != nil:
		errs = append(errs,
			field.Forbidden(path.Child("sessionAffinityConfig"), "must not be set when session affinity is None"))
	case spec.SessionAffinity == corev1.ServiceAffinityClientIP && c != nil && c.ClientIP != nil &&
		c.ClientIP.TimeoutSeconds != nil:
		t := *c.ClientIP.TimeoutSeconds
		errs = append(errs, field.InvalidIf(t <= 0 || t > 86400, path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"),
			t, "must be greater than 0 and less than 86400")...)
	}
	return errs
}

// validateTraffic validates how nodes distribute traffic. Services that no external traffic reaches have no
// externalTrafficPolicy; all others need one, which defaultService sets.
func validateTraffic(s *corev1.Service, path *field.Path) field.ErrorList {
	spec := &s.Spec
	var errs field.ErrorList
	if p := spec.ExternalTrafficPolicy; p != "" {
		at := path.Child("externalTrafficPolicy")
		if !hasExternalTraffic(s) {
			errs = append(errs, field.Invalid(at, p, "may only be set for externally-accessible services"))
		} else {
			errs = append(errs,
				field.OneOf(at, p, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
		}
	} else if hasExternalTraffic(s) {
		errs = append(errs, field.Required(path.Child("externalTrafficPolicy"), ""))
	}
	if n, at := spec.HealthCheckNodePort, path.Child("healthCheckNodePort"); n != 0 {
		if !hasHealthCheckPort(s) {
			errs = append(errs,
				field.Invalid(at, n, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		} else {
			errs = append(errs, field.PortNumber(at, n)...)
		}
	}
	errs = append(errs, field.OptionalOneOf(path.Child("internalTrafficPolicy"), spec.InternalTrafficPolicy,
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	return append(errs, field.OptionalOneOf(path.Child("trafficDistribution"), spec.TrafficDistribution,
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode)...)
}

// validateLoadBalancerClass validates the class of a load balancer (KEP-1959): a label key, such as
// example.com/internal.
func validateLoadBalancerClass(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	switch c := spec.LoadBalancerClass; {
	case c == nil:
		return nil
	case spec.Type != corev1.ServiceTypeLoadBalancer:
		return field.ErrorList{field.Forbidden(path, "may only be used when `type` is 'LoadBalancer'")}
	default:
		return field.LabelKey(path, *c)
	}
}

// validateServiceUpdate validates an update. Like kube-apiserver, it checks loadBalancerClass
// twice.
// The API documents that the class and the health check port cannot change once they are set.
func (r AddressRules) validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	errs := append(validateClusterIPsUpdate(s, old), validateIPFamiliesUpdate(s, old)...)
	path := field.NewPath("spec")
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		!ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		var value any = json.RawMessage("null")
		if c := s.Spec.LoadBalancerClass; c != nil {
			value = *c
		}
		errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), value, "may not change once set"))
	}
	errs = append(errs, validateLoadBalancerClass(&s.Spec, path.Child("loadBalancerClass"))...)
	errs = append(errs, field.ForbiddenIf(hasHealthCheckPort(old) && hasHealthCheckPort(s) &&
		s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort, path.Child("healthCheckNodePort"),
		"field is immutable")...)
	return append(errs, r.validateService(s, old)...)
}
