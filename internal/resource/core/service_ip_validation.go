package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// maxClusterIPs is two: one address of each IP family.
const maxClusterIPs = 2

func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func validateTopologyAnnotations(annotations map[string]string) field.ErrorList {
	hints, hinted := annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, set := annotations[corev1.AnnotationTopologyMode]
	if !hinted || !set || mode == hints {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode)
	return field.ErrorList{
		field.Invalid(path, mode,
			fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))}
}

// ValidateServiceIPs validates clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy. old is
// nil on create. Addresses that the old Service had are not validated again.
// clusterIP is always the first of clusterIPs, for clients that know only one of the fields. The addresses and
// families are compared by position (KEP-563).
func (r AddressRules) ValidateServiceIPs(s, old *corev1.Service) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	at := path.Child("clusterIPs")
	if spec.Type == corev1.ServiceTypeExternalName {
		return validateNoIPs(spec, path)
	}
	var errs field.ErrorList
	switch {
	case spec.ClusterIP == "":
		errs = append(errs, field.InvalidIf(len(spec.ClusterIPs) > 0, at, spec.ClusterIPs,
			"must be empty when `clusterIP` is not specified")...)
	case len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(at, ""))
	case spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(at, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	errs = append(errs, validateFamilies(spec, path)...)
	errs = append(errs, field.OptionalOneOf(path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy,
		corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	wrong := r.validateEachClusterIP(spec, old, at)
	errs = append(errs, wrong...)
	errs = append(errs, field.InvalidIf(len(spec.ClusterIPs) > maxClusterIPs, at, spec.ClusterIPs,
		"may only hold up to 2 values")...)
	if len(wrong) > 0 {
		return errs
	}
	return append(errs, validateClusterIPFamilies(s, at)...)
}

// validateNoIPs forbids addresses for the type ExternalName, which is only a DNS name.
func validateNoIPs(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	const message = "may not be set for ExternalName services"
	return field.Join(
		field.ForbiddenIf(len(spec.ClusterIPs) > 0, path.Child("clusterIPs"), message),
		field.ForbiddenIf(len(spec.IPFamilies) > 0, path.Child("ipFamilies"), message),
		field.ForbiddenIf(spec.IPFamilyPolicy != nil, path.Child("ipFamilyPolicy"), message))
}

// validateFamilies validates ipFamilies. Whether the cluster has these families is known to the allocator only.
func validateFamilies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.IPFamily]()
	for i, f := range spec.IPFamilies {
		at := path.Child("ipFamilies").Index(i)
		errs = append(errs, field.OneOf(at, f, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		errs = append(errs, field.Unique(seen, at, f)...)
	}
	return errs
}

func (r AddressRules) validateEachClusterIP(spec *corev1.ServiceSpec, old *corev1.Service, path *field.Path) field.ErrorList {
	var before []string
	if old != nil {
		before = old.Spec.ClusterIPs
	}
	var errs field.ErrorList
	for i, ip := range spec.ClusterIPs {
		if i == 0 && ip == corev1.ClusterIPNone {
			errs = append(errs, field.InvalidIf(len(spec.ClusterIPs) > 1, path, spec.ClusterIPs,
				"'None' must be the first and only value")...)
			continue
		}
		errs = append(errs, r.ValidateIP(path.Index(i), ip, before)...)
	}
	return errs
}

// validateClusterIPFamilies checks that valid addresses agree with each other and with
// ipFamilies.
func validateClusterIPFamilies(s *corev1.Service, path *field.Path) field.ErrorList {
	spec := &s.Spec
	var errs field.ErrorList
	if len(spec.ClusterIPs) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(spec.ClusterIPs); err != nil {
			errs = append(errs, field.InternalError(path, fmt.Errorf("failed to check for dual stack with error:%w", err)))
		} else if !dual {
			errs = append(errs, field.Invalid(path, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
		}
	}
	if isHeadless(s) {
		return errs
	}
	for i := range min(len(spec.ClusterIPs), len(spec.IPFamilies)) {
		ip, family := spec.ClusterIPs[i], spec.IPFamilies[i]
		if six := netutils.IsIPv6String(ip); family == corev1.IPv4Protocol && six || family == corev1.IPv6Protocol && !six {
			errs = append(errs,
				field.Invalid(path.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i)))
		}
	}
	return errs
}

// validateExternalIPs validates addresses that nodes accept traffic for. An address that the old Service had
// may be in any notation, but not in a range that ValidateEndpointIP refuses.
func (r AddressRules) validateExternalIPs(s, old *corev1.Service) field.ErrorList {
	var before []string
	if old != nil {
		before = old.Spec.ExternalIPs
	}
	var errs field.ErrorList
	for i, ip := range s.Spec.ExternalIPs {
		at := field.NewPath("spec", "externalIPs").Index(i)
		if wrong := r.ValidateIP(at, ip, before); len(wrong) > 0 {
			errs = append(errs, wrong...)
		} else {
			errs = append(errs, ValidateEndpointIP(ip, at)...)
		}
	}
	return errs
}

// validateSourceRanges validates loadBalancerSourceRanges, or the annotation that is older
// than this field.
// If both are set, only the field is validated. Spaces around a range are allowed. As in kube-apiserver, errors
// name the field with a capital L.
func (r AddressRules) validateSourceRanges(s, old *corev1.Service) field.ErrorList {
	const notBalancer = "may only be used when `type` is 'LoadBalancer'"
	balancer := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	var errs field.ErrorList
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		at := field.NewPath("spec", "LoadBalancerSourceRanges")
		errs = append(errs, field.ForbiddenIf(!balancer, at, notBalancer)...)
		var before []string
		if old != nil {
			before = declare.Texts(old.Spec.LoadBalancerSourceRanges, strings.TrimSpace)
		}
		for i, cidr := range s.Spec.LoadBalancerSourceRanges {
			errs = append(errs, r.ValidateCIDR(at.Index(i), strings.TrimSpace(cidr), before)...)
		}
		return errs
	}
	const annotation = corev1.AnnotationLoadBalancerSourceRangesKey
	value, set := s.Annotations[annotation]
	if !set {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(annotation)
	errs = append(errs, field.ForbiddenIf(!balancer, at, notBalancer)...)
	if value = strings.TrimSpace(value); value == "" || old != nil &&
		old.Annotations[annotation] == s.Annotations[annotation] {
		return errs
	}
	for cidr := range strings.SplitSeq(value, ",") {
		errs = append(errs, r.ValidateCIDR(at, strings.TrimSpace(cidr), nil)...)
	}
	return errs
}

// validateClusterIPsUpdate allows to add or remove the secondary address, and no other change.
// The exception is a change of the type to or from ExternalName. Services that were headless and stay so are not
// checked. A client that removes the secondary address must also set the policy SingleStack.
func validateClusterIPsUpdate(s, old *corev1.Service) field.ErrorList {
	if s.Spec.Type == corev1.ServiceTypeExternalName || old.Spec.Type == corev1.ServiceTypeExternalName || isHeadless(s) &&
		isHeadless(old) {
		return nil
	}
	path, is, was := field.NewPath("spec", "clusterIPs"), s.Spec.ClusterIPs, old.Spec.ClusterIPs
	const changed = "may not change once set"
	var errs field.ErrorList
	if len(is) == len(was) {
		for i := range was {
			errs = append(errs, field.InvalidIf(is[i] != was[i], path.Index(i), is, changed)...)
		}
		return errs
	}
	errs = append(errs, field.InvalidIf(len(is) == 0, path.Index(0), is, "primary clusterIP can not be unset")...)
	errs = append(errs, field.InvalidIf(len(is) > 0 && len(was) > 0 && is[0] != was[0], path.Index(0), is, changed)...)
	return append(errs, field.InvalidIf(len(is) < len(was) && len(is) == 1 && !isSingleStack(s),
		field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
		"must be set to 'SingleStack' when releasing the secondary clusterIP")...)
}

func isSingleStack(s *corev1.Service) bool {
	return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
}

// validateIPFamiliesUpdate allows to add or remove the secondary IP family, and no other
// change.
// Some errors show clusterIPs as their value, as in kube-apiserver. A headless Service may change its families:
// it has no addresses of its own.
func validateIPFamiliesUpdate(s, old *corev1.Service) field.ErrorList {
	if s.Spec.Type == corev1.ServiceTypeExternalName || old.Spec.Type == corev1.ServiceTypeExternalName || isHeadless(s) ||
		isHeadless(old) {
		return nil
	}
	at, is, was := field.NewPath("spec", "ipFamilies").Index(0), s.Spec.IPFamilies, old.Spec.IPFamilies
	const changed = "may not change once set"
	var errs field.ErrorList
	if len(is) == len(was) {
		for i := range was {
			errs = append(errs, field.InvalidIf(is[i] != was[i], at, is, changed)...)
		}
		return errs
	}
	errs = append(errs, field.InvalidIf(len(is) < len(was) && len(s.Spec.ClusterIPs) == 0, at, is,
		"primary ipFamily can not be unset")...)
	errs = append(errs, field.InvalidIf(len(is) > 0 && len(was) > 0 && is[0] != was[0], at, s.Spec.ClusterIPs,
		changed)...)
	return append(errs, field.InvalidIf(len(is) < len(was) && len(is) == 1 && !isSingleStack(s),
		field.NewPath("spec", "ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
		"must be set to 'SingleStack' when releasing the secondary ipFamily")...)
}

// validateServiceStatus validates the load balancer status.
// The controller of the load balancer writes it. ipMode (KEP-1860) says if packets arrive with the address of
// the load balancer as their destination (VIP) or with that of a node or pod (Proxy).
func (r AddressRules) validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	path, list := field.NewPath("status", "loadBalancer", "ingress"), s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(list) > 0 {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	before := declare.Texts(old.Status.LoadBalancer.Ingress,
		func(in corev1.LoadBalancerIngress) string { return in.IP })
	modes := []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}
	var errs field.ErrorList
	for i, in := range list {
		at := path.Index(i)
		if in.IP != "" {
			errs = append(errs, r.ValidateIP(at.Child("ip"), in.IP, before)...)
		}
		switch mode := at.Child("ipMode"); {
		case in.IPMode == nil && in.IP != "":
			errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
		case in.IPMode != nil && in.IP == "":
			errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
		case in.IPMode != nil && !slices.Contains(modes, *in.IPMode):
			errs = append(errs, field.NotSupported(mode, in.IPMode, modes))
		}
		if in.Hostname != "" {
			errs = append(errs, field.DNSSubdomain(at.Child("hostname"), in.Hostname)...)
			errs = append(errs, field.InvalidIf(netutils.ParseIPSloppy(in.Hostname) != nil, at.Child("hostname"), in.Hostname,
				"must be a DNS name, not an IP address")...)
		}
	}
	return errs
}
