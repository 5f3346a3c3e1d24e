package discovery

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// Limits of the lists in a slice.
// They bound the size of a slice, which kube-proxy on every node watches. The API documents at most 100 ports,
// but kube-apiserver accepts 20,000.
const (
	mostTopologyLabels = 16
	mostAddresses      = 100
	mostPorts          = 20000
	mostEndpoints      = 1000
	mostHints          = 8
)

// rules are the rules of validation that depend on gates.
type rules struct{ addresses core.AddressRules }

// validateSlice validates a slice. old is nil on create. Endpoints that the update does not
// change are not validated again, because they may be older than the rules.
func (r rules) validateSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := validateAddressType(s.AddressType)
	errs = append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
	wrong := r.validateEndpoints(s, field.NewPath("endpoints"))
	if len(wrong) > 0 && old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return errs
	}
	return append(errs, wrong...)
}

// validateGenerateName validates generateName, which the generic rules do not check on update.
func validateGenerateName(name string) field.ErrorList {
	if name == "" {
		return nil
	}
	return field.Messages(field.NewPath("metadata", "generateName"), name, apivalidation.NameIsDNSSubdomain(name, true))
}

func validateAddressType(t discoveryv1.AddressType) field.ErrorList {
	return field.RequiredOneOf(field.NewPath("addressType"), t, discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4,
		discoveryv1.AddressTypeIPv6)
}

// validatePorts validates the ports. Names are unique in a slice, and the empty name counts as one: a slice has
// at most one port without a name. The number is not validated.
func validatePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > mostPorts {
		return field.ErrorList{field.TooMany(path, len(ports), mostPorts)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, p := range ports {
		at, name := path.Index(i), ptr.Deref(p.Name, "")
		errs = append(errs, field.IfSet(at.Child("name"), name, field.DNSLabel)...)
		errs = append(errs, field.Unique(seen, at.Child("name"), name)...)
		errs = append(errs, field.MandatoryOneOf(at.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP,
			corev1.ProtocolUDP)...)
		errs = append(errs, field.Optional(at.Child("appProtocol"), p.AppProtocol, field.LabelKey)...)
	}
	return errs
}

func (r rules) validateEndpoints(s *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if len(s.Endpoints) > mostEndpoints {
		return field.ErrorList{field.TooMany(path, len(s.Endpoints), mostEndpoints)}
	}
	var errs field.ErrorList
	for i := range s.Endpoints {
		errs = append(errs, r.validateEndpoint(&s.Endpoints[i], s.AddressType, path.Index(i))...)
	}
	return errs
}

// validateEndpoint validates one endpoint. The zone is not allowed in the topology: the conversion from v1beta1,
// which is no longer served, moved it to the field zone.
func (r rules) validateEndpoint(e *discoveryv1.Endpoint, addresses discoveryv1.AddressType, path *field.Path) field.ErrorList {
	at := path.Child("addresses")
	errs := field.RequiredIf(len(e.Addresses) == 0, at, "")
	errs = append(errs, field.MaxItems(at, len(e.Addresses), mostAddresses)...)
	for i, a := range e.Addresses {
		errs = append(errs, r.validateAddress(a, addresses, at, i)...)
	}
	errs = append(errs, field.Optional(path.Child("nodeName"), e.NodeName, field.DNSSubdomain)...)
	topology := path.Child("deprecatedTopology")
	errs = append(errs, field.MaxItems(topology, len(e.DeprecatedTopology), mostTopologyLabels)...)
	errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, topology.K8s())...)
	if _, there := e.DeprecatedTopology[corev1.LabelTopologyZone]; there {
		errs = append(errs, field.InternalError(topology.Key(corev1.LabelTopologyZone),
			errors.New("reserved key was not removed in conversion")))
	}
	errs = append(errs, field.Optional(path.Child("hostname"), e.Hostname, field.DNSLabel)...)
	return append(errs, field.IfPresent(path.Child("hints"), e.Hints, validateHints)...)
}

// validateAddress validates the address at index i of the list at path.
func (r rules) validateAddress(a string, kind discoveryv1.AddressType, path *field.Path, i int) field.ErrorList {
	at := path.Index(i)
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		errs := r.addresses.ValidateIP(at, a, nil)
		if len(errs) > 0 {
			return errs
		}
		// The error has the path of the list and not of the element, as in kube-apiserver. The same is true for
		// IPv6.
		errs = append(errs, field.InvalidIf(!netutils.IsIPv4String(a), path, a, "must be an IPv4 address")...)
		return append(errs, core.ValidateEndpointIP(a, at)...)
	case discoveryv1.AddressTypeIPv6:
		errs := validation.IsValidIP(at.K8s(), a)
		if len(errs) > 0 {
			return errs
		}
		errs = append(errs, field.InvalidIf(!netutils.IsIPv6String(a), path, a, "must be an IPv6 address")...)
		return append(errs, core.ValidateEndpointIP(a, at)...)
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(at.K8s(), a)
	}
	return nil
}

// validateHints validates the topology hints of an endpoint.
// Too many zones hide the errors of the nodes, and too many nodes only their own, as in kube-apiserver. A zone is
// the value of a label, a node the name of an object.
func validateHints(h *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	zones, nodes := path.Child("forZones"), path.Child("forNodes")
	if errs := field.MaxItems(zones, len(h.ForZones), mostHints); len(errs) > 0 {
		return errs
	}
	errs := validateHintNames(h.ForZones, func(z discoveryv1.ForZone) string { return z.Name }, zones, field.LabelValue)
	if more := field.MaxItems(nodes, len(h.ForNodes), mostHints); len(more) > 0 {
		return append(errs, more...)
	}
	return append(errs,
		validateHintNames(h.ForNodes, func(n discoveryv1.ForNode) string { return n.Name }, nodes, field.DNSSubdomain)...)
}

func validateHintNames[T any](
	hints []T, nameOf func(T) string, path *field.Path, rule func(*field.Path, string) field.ErrorList,
) (errs field.ErrorList) {
	for i, hint := range hints {
		at, name := path.Index(i).Child("name"), nameOf(hint)
		repeated := slices.ContainsFunc(hints[:i], func(other T) bool { return nameOf(other) == name })
		errs = append(errs, field.DuplicateIf(repeated, at, name)...)
		errs = append(errs, rule(at, name)...)
	}
	return errs
}
