package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const (
	notNegative    = apivalidation.IsNegativeErrorMsg
	mustBePositive = "must be greater than zero"
)

// validateLabels validates the keys and the values of labels, or of a selector of labels.
func validateLabels(path *field.Path, labels map[string]string) field.ErrorList {
	var errs field.ErrorList
	for key, value := range labels {
		errs = append(errs, field.LabelKey(path, key)...)
		errs = append(errs, field.LabelValue(path, value)...)
	}
	return errs
}

func portNumberOrName(path *field.Path, port intstr.IntOrString) field.ErrorList {
	if port.Type == intstr.String {
		return field.PortName(path, port.StrVal)
	}
	return field.PortNumber(path, port.IntVal)
}

// validateLocalPath returns an error for an absolute path, or one that contains "..".
func validateLocalPath(path *field.Path, value string) field.ErrorList {
	errs := field.InvalidIf(strings.HasPrefix(value, "/"), path, value, "must be a relative path")
	return append(errs, noBacksteps(path, value)...)
}

// noBacksteps returns an error if a part of the path is "..", which could lead out of a volume. Names such as
// "..a" are no such parts.
func noBacksteps(path *field.Path, value string) field.ErrorList {
	for part := range strings.SplitSeq(value, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(path, value, "must not contain '..'")}
		}
	}
	return nil
}

// validateLocalFilePath is validateLocalPath, and also refuses names that begin with two dots,
// because the kubelet uses such names itself.
// The kubelet replaces all files of a volume at once, by a new target of the link ..data.
func validateLocalFilePath(path *field.Path, value string) field.ErrorList {
	errs := validateLocalPath(path, value)
	// kube-apiserver reports the path ".." twice.
	return append(errs, field.InvalidIf(strings.HasPrefix(value, "..") && (len(errs) == 0 || value == ".."), path, value,
		"must not start with '..'")...)
}

// fileMode validates the permissions of a file, which have nine bits: the set-user-ID bit, for example, is
// refused.
func fileMode(path *field.Path, mode *int32) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// ValidateNonNegativeQuantity returns an error for a negative quantity.
func ValidateNonNegativeQuantity(path *field.Path, q resource.Quantity) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), notNegative)}
	}
	return nil
}

// configKey validates a key of a ConfigMap or a Secret.
func configKey(path *field.Path, key string) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return field.Messages(path, key, validation.IsConfigMapKey(key))
}

// relaxedEnvName requires a name that an environment variable can have.
// All printable ASCII characters except = are allowed (KEP-4369).
func relaxedEnvName(path *field.Path, name string) field.ErrorList {
	return field.Messages(path, name, validation.IsRelaxedEnvVarName(name))
}

func protocol(path *field.Path, p corev1.Protocol) field.ErrorList {
	return field.RequiredOneOf(path, p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func fieldLabelError(path *field.Path, label string, err error) *field.Error {
	return field.Invalid(path, label, fmt.Sprintf("error converting fieldPath: %v", err))
}

// AddressRules validate IP addresses and ranges in fields of kinds that have existed for long. The zero value refuses
// ambiguous notations, such as leading zeros.
// For example, some programs read 010.0.0.1 as 10.0.0.1 and others as 8.0.0.1. See KEP-4858.
type AddressRules struct {
	ambiguous bool // StrictIPCIDRValidation is off
}

// NewAddressRules returns the rules with these gates.
func NewAddressRules(gates features.Gates) AddressRules {
	return AddressRules{ambiguous: !gates.Enabled(features.StrictIPCIDRValidation)}
}

// ValidateIP validates an IP address. Addresses that the object had before are always valid, in any notation.
func (r AddressRules) ValidateIP(path *field.Path, ip string, before []string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path.K8s(), ip, !r.ambiguous, before)
}

// validateIPs applies ValidateIP to each address of a list.
func (r AddressRules) validateIPs(path *field.Path, ips, before []string) field.ErrorList {
	return field.EachValue(path, ips, func(at *field.Path, ip string) field.ErrorList { return r.ValidateIP(at, ip, before) })
}

// ValidateCIDR validates an address range in the same way as ValidateIP.
func (r AddressRules) ValidateCIDR(path *field.Path, cidr string, before []string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path.K8s(), cidr, !r.ambiguous, before)
}

// ValidateEndpointIP returns an error for addresses that an endpoint of a Service cannot have.
// Link-local addresses often belong to services for the node alone, such as the metadata of a cloud at
// 169.254.169.254, and loopback addresses to the node itself. A Service must not make them reachable for pods.
func ValidateEndpointIP(address string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		return field.ErrorList{field.Invalid(path, address, "must be a valid IP address")}
	}
	var errs field.ErrorList
	for _, not := range []struct {
		is      bool
		message string
	}{
		{ip.IsUnspecified(), fmt.Sprintf("may not be unspecified (%v)", address)},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		errs = append(errs, field.InvalidIf(not.is, path, address, not.message)...)
	}
	return errs
}
