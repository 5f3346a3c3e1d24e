package networking

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// validateNetworkPolicy validates a policy. old is nil on create. CIDRs that the old policy
// has anywhere are not validated again.
// Old policies may have notations that newer rules refuse, such as 010.0.0.0/8, and updates must stay possible.
func (r rules) validateNetworkPolicy(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	had := policyCIDRs(old)
	path, s := field.NewPath("spec"), &p.Spec
	errs := field.LabelSelector(path.Child("podSelector"), &s.PodSelector)
	for i, rule := range s.Ingress {
		at := path.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, r.validatePeers(rule.From, had, at.Child("from"))...)
	}
	for i, rule := range s.Egress {
		at := path.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, r.validatePeers(rule.To, had, at.Child("to"))...)
	}
	types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if len(s.PolicyTypes) > len(types) {
		return append(errs,
			field.Invalid(path.Child("policyTypes"), s.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range s.PolicyTypes {
		errs = append(errs, field.OneOf(path.Child("policyTypes").Index(i), t, types...)...)
	}
	return errs
}

// validatePolicyPorts validates ports and ranges of ports (endPort, KEP-2079). A range needs a number as its first
// port: a name can be a different number in each pod.
func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		at := path.Index(i)
		errs = append(errs, field.OptionalOneOf(at.Child("protocol"), p.Protocol,
			corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		end := at.Child("endPort")
		switch {
		case p.Port == nil:
			if p.EndPort != nil {
				errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
			}
		case p.Port.Type == intstr.Int:
			errs = append(errs, field.PortNumber(at.Child("port"), p.Port.IntVal)...)
			errs = append(errs, field.InvalidIf(p.EndPort != nil && *p.EndPort < p.Port.IntVal, end, ptr.Deref(p.EndPort, 0),
				"must be greater than or equal to `port`")...)
			errs = append(errs, field.Optional(end, p.EndPort, field.PortNumber)...)
		default:
			if p.EndPort != nil {
				errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
			}
			errs = append(errs, field.PortName(at.Child("port"), p.Port.StrVal)...)
		}
	}
	return errs
}

// ipBlocks returns the IP blocks of a policy with their paths.
// The order of a map is random, so a caller must sort what it shows to clients.
func ipBlocks(p *networkingv1.NetworkPolicy) map[*networkingv1.IPBlock]*field.Path {
	blocks, path := map[*networkingv1.IPBlock]*field.Path{}, field.NewPath("spec")
	add := func(peers []networkingv1.NetworkPolicyPeer, path *field.Path) {
		for i := range peers {
			if b := peers[i].IPBlock; b != nil {
				blocks[b] = path.Index(i).Child("ipBlock")
			}
		}
	}
	for i := range p.Spec.Ingress {
		add(p.Spec.Ingress[i].From, path.Child("ingress").Index(i).Child("from"))
	}
	for i := range p.Spec.Egress {
		add(p.Spec.Egress[i].To, path.Child("egress").Index(i).Child("to"))
	}
	return blocks
}

func policyCIDRs(p *networkingv1.NetworkPolicy) []string {
	if p == nil {
		return nil
	}
	var cidrs []string
	for b := range ipBlocks(p) {
		cidrs = append(append(cidrs, b.CIDR), b.Except...)
	}
	return cidrs
}

func networkPolicyWarnings(p, _ *networkingv1.NetworkPolicy) []string {
	var warnings []string
	for b, path := range ipBlocks(p) {
		warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("cidr").K8s(), b.CIDR)...)
		warnings = append(warnings, field.WarnEach(path.Child("except"), b.Except, validation.GetWarningsForCIDR)...)
	}
	slices.Sort(warnings)
	return warnings
}

// validatePeers validates the other side of the traffic. A peer may have both selectors, which then select pods in
// the namespaces. An IP block is meant for addresses outside the cluster and excludes selectors.
func (r rules) validatePeers(peers []networkingv1.NetworkPolicyPeer, had []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range peers {
		at := path.Index(i)
		errs = append(errs, field.LabelSelector(at.Child("podSelector"), p.PodSelector)...)
		errs = append(errs, field.LabelSelector(at.Child("namespaceSelector"), p.NamespaceSelector)...)
		selects := p.PodSelector != nil || p.NamespaceSelector != nil
		if p.IPBlock != nil {
			errs = append(errs, r.validateIPBlock(p.IPBlock, had, at.Child("ipBlock"))...)
		}
		errs = append(errs, field.RequiredIf(!selects && p.IPBlock == nil, at, "must specify a peer")...)
		errs = append(errs, field.ForbiddenIf(selects && p.IPBlock != nil, at,
			"may not specify both ipBlock and another peer")...)
	}
	return errs
}

// validateIPBlock requires that each exception is smaller than the block and inside it: 10.1.0.0/16 is valid for
// the block 10.0.0.0/8, and 10.0.0.0/8 itself is not. It parses leniently, because old policies may have leading
// zeros.
func (r rules) validateIPBlock(b *networkingv1.IPBlock, had []string, path *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := r.addresses.ValidateCIDR(path.Child("cidr"), b.CIDR, had)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	bits, _ := whole.Mask.Size()
	for i, e := range b.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, r.addresses.ValidateCIDR(at, e, had)...)
		_, part, err := netutils.ParseCIDRSloppy(e)
		if err != nil {
			continue
		}
		if partBits, _ := part.Mask.Size(); !whole.Contains(part.IP) || partBits <= bits {
			errs = append(errs, field.Invalid(at, e, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

// validateClassAnnotation compares the class of a new Ingress with the annotation that was used before the field existed.
// It is not called on update: an Ingress of an older release may have two different classes.
func validateClassAnnotation(i *networkingv1.Ingress) field.ErrorList {
	class, given := i.Annotations[classAnnotation]
	if !given || i.Spec.IngressClassName == nil || class == *i.Spec.IngressClassName {
		return nil
	}
	return field.ErrorList{field.Invalid(
		field.NewPath("annotations").Child(classAnnotation), class, "must match `ingressClassName` when both are specified")}
}

// validateIngress validates an Ingress. old is nil on create. If old names a Service whose name begins with a digit,
// the new Ingress may name such Services too.
func (r rules) validateIngress(i, old *networkingv1.Ingress) field.ErrorList {
	r.letterFirst = r.letterFirst && !slices.ContainsFunc(serviceNames(old), startsWithDigit)
	path, s := field.NewPath("spec"), &i.Spec
	var errs field.ErrorList
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		errs = append(errs,
			field.Invalid(path, declare.Internal(s.Rules), "either `defaultBackend` or `rules` must be specified"))
	}
	errs = append(errs, field.IfPresent(path.Child("defaultBackend"), s.DefaultBackend, r.validateBackend)...)
	for i := range s.Rules {
		at := path.Child("rules").Index(i)
		errs = append(errs, validateHost(s.Rules[i].Host, at.Child("host"))...)
		if h := s.Rules[i].HTTP; h != nil {
			errs = append(errs, r.validatePaths(h.Paths, at.Child("http", "paths"))...)
		}
	}
	for i, t := range s.TLS {
		at := path.Child("tls").Index(i)
		errs = append(errs, field.EachValue(at.Child("hosts"), t.Hosts, maybeWildcard)...)
		errs = append(errs, field.IfSet(at.Child("secretName"), t.SecretName, field.DNSSubdomain)...)
	}
	return append(errs, field.Optional(path.Child("ingressClassName"), s.IngressClassName, field.DNSSubdomain)...)
}

func validateHost(host string, path *field.Path) field.ErrorList {
	if host == "" {
		return nil
	}
	// An IPv4 address is a valid DNS name and has one error; an IPv6 address has two.
	if netutils.ParseIPSloppy(host) != nil {
		errs := field.ErrorList{field.Invalid(path, host, "must be a DNS name, not an IP address")}
		return append(errs, field.DNSSubdomain(path, host)...)
	}
	return maybeWildcard(path, host)
}

// maybeWildcard requires a subdomain, whose first label may be "*".
func maybeWildcard(path *field.Path, host string) field.ErrorList {
	if strings.Contains(host, "*") {
		return field.Messages(path, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	return field.DNSSubdomain(path, host)
}

var (
	// A proxy may remove or decode these parts of a path before it compares paths. A rule with one of them would
	// match nothing, or another path than it says.
	badSequences = []string{"//", "/./", "/../", "%2f", "%2F"}
	badSuffixes  = []string{"/..", "/."}
)

// validatePaths validates the paths of a rule. With the type ImplementationSpecific only the first slash is
// checked, and the path may be empty: the controller defines what it means, for example a regular expression.
func (r rules) validatePaths(paths []networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if len(paths) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	types := []networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific,
		networkingv1.PathTypePrefix}
	for i := range paths {
		p, at := &paths[i], path.Index(i)
		switch {
		case p.PathType == nil:
			errs = append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
			continue
		case *p.PathType == networkingv1.PathTypeImplementationSpecific:
			errs = append(errs, field.InvalidIf(p.Path != "" && !strings.HasPrefix(p.Path, "/"), at.Child("path"), p.Path,
				"must be an absolute path")...)
		case slices.Contains(types, *p.PathType):
			errs = append(errs, validatePath(p.Path, at.Child("path"))...)
		default:
			errs = append(errs, field.NotSupported(at.Child("pathType"), *p.PathType, types))
		}
		errs = append(errs, r.validateBackend(&p.Backend, at.Child("backend"))...)
	}
	return errs
}

// validatePath validates a path of the type Exact or Prefix. It is required, at least "/".
func validatePath(p string, path *field.Path) field.ErrorList {
	errs := field.InvalidIf(!strings.HasPrefix(p, "/"), path, p, "must be an absolute path")
	if p == "" {
		return errs
	}
	for _, bad := range badSequences {
		if strings.Contains(p, bad) {
			errs = append(errs, field.Invalid(path, p, fmt.Sprintf("must not contain '%s'", bad)))
		}
	}
	for _, bad := range badSuffixes {
		if strings.HasSuffix(p, bad) {
			errs = append(errs, field.Invalid(path, p, fmt.Sprintf("cannot end with '%s'", bad)))
		}
	}
	return errs
}

// validateBackend requires either a Service with one port, by name or by number, or a resource: a reference to any
// object in the namespace, such as a bucket. Some errors are about the backend and not about a field of it, as in
// kube-apiserver.
func (r rules) validateBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		at := path.Child("resource")
		errs := field.Optional(at.Child("apiGroup"), b.Resource.APIGroup, field.DNSSubdomain)
		errs = append(errs, field.NotEmptyAnd(at.Child("kind"), b.Resource.Kind, field.PathSegment)...)
		return append(errs, field.NotEmptyAnd(at.Child("name"), b.Resource.Name, field.PathSegment)...)
	case b.Service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	at := path.Child("service")
	errs := field.NotEmptyAnd(at.Child("name"), b.Service.Name, r.serviceName)
	switch port := b.Service.Port; {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, field.PortName(at.Child("port", "name"), port.Name)...)
	case port.Number != 0:
		errs = append(errs, field.PortNumber(at.Child("port", "number"), port.Number)...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

// serviceName requires the name of a Service. Without the gate RelaxedServiceNameValidation it is a label of RFC
// 1035, which begins with a letter: "1st" is refused.
func (r rules) serviceName(path *field.Path, name string) field.ErrorList {
	if r.letterFirst {
		return field.Messages(path, name, validation.IsDNS1035Label(name))
	}
	return field.DNSLabel(path, name)
}

// serviceNames returns the names of the Services of an Ingress, which may be nil.
func serviceNames(i *networkingv1.Ingress) (names []string) {
	if i == nil {
		return nil
	}
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			names = append(names, b.Service.Name)
		}
	}
	add(i.Spec.DefaultBackend)
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j := range rule.HTTP.Paths {
			add(&rule.HTTP.Paths[j].Backend)
		}
	}
	return names
}

// startsWithDigit reports whether a name is valid only with the relaxed rule: a label of RFC 1123, not of RFC
// 1035.
func startsWithDigit(name string) bool {
	return len(validation.IsDNS1035Label(name)) > 0 && len(validation.IsDNS1123Label(name)) == 0
}

// validateIngressStatusUpdate validates the load balancer status of an ingress.
// Addresses that the old status has are not validated again: a controller may have written them before the rules
// became strict.
func (r rules) validateIngressStatusUpdate(i, old *networkingv1.Ingress) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	had := declare.Texts(old.Status.LoadBalancer.Ingress,
		func(in networkingv1.IngressLoadBalancerIngress) string { return in.IP })
	var errs field.ErrorList
	for k, in := range i.Status.LoadBalancer.Ingress {
		at := path.Index(k)
		if in.IP != "" {
			errs = append(errs, r.addresses.ValidateIP(at.Child("ip"), in.IP, had)...)
		}
		if in.Hostname != "" {
			errs = append(errs, field.DNSSubdomain(at.Child("hostname"), in.Hostname)...)
			errs = append(errs, field.InvalidIf(netutils.ParseIPSloppy(in.Hostname) != nil, at.Child("hostname"), in.Hostname,
				"must be a DNS name, not an IP address")...)
		}
	}
	return errs
}
