// Package names checks names, label keys and label values by the rules of Kubernetes. It reads each character of a
// valid name once. For an invalid one it returns the messages of k8s.io/apimachinery, whose regular expressions are ten
// times slower.
package names

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The functions return nil for a valid name, and otherwise the messages about what is wrong.

// IsDNS1123Label checks a DNS label.
func IsDNS1123Label(name string) []string {
	if len(name) <= validation.DNS1123LabelMaxLength && dnsLabel(name) {
		return nil
	}
	return validation.IsDNS1123Label(name)
}

// IsDNS1123Subdomain checks a DNS subdomain: labels between dots.
func IsDNS1123Subdomain(name string) []string {
	if subdomain(name) {
		return nil
	}
	return validation.IsDNS1123Subdomain(name)
}

// NameIsDNSSubdomain checks the name of an object, or a prefix of generated names, that has to be a DNS subdomain.
func NameIsDNSSubdomain(name string, prefix bool) []string {
	if subdomain(name) {
		return nil
	}
	return apivalidation.NameIsDNSSubdomain(name, prefix)
}

// IsLabelKey checks a label key, which is also called a qualified name: a name, with or without a DNS subdomain and a
// slash before it.
func IsLabelKey(key string) []string {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed && labelName(key) || prefixed && subdomain(prefix) && labelName(name) {
		return nil
	}
	return validation.IsQualifiedName(key)
}

// IsLabelValue checks the value of a label, which may be empty.
func IsLabelValue(value string) []string {
	if value == "" || labelName(value) {
		return nil
	}
	return validation.IsValidLabelValue(value)
}

// IsPortName checks the name of a port: at most 15 lower-case letters, digits and single hyphens, with a letter.
func IsPortName(name string) []string {
	letter := false
	for i := range len(name) {
		c := name[i]
		letter = letter || c >= 'a' && c <= 'z'
		hyphen := c == '-' && i > 0 && i < len(name)-1 && name[i-1] != '-'
		if !hyphen && !lowerOrDigit(c) {
			return validation.IsValidPortName(name)
		}
	}
	if letter && len(name) <= maxPortName {
		return nil
	}
	return validation.IsValidPortName(name)
}

const maxPortName = 15

func subdomain(name string) bool {
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return false
	}
	for {
		label, rest, more := strings.Cut(name, ".")
		if !dnsLabel(label) {
			return false
		}
		if !more {
			return true
		}
		name = rest
	}
}

// dnsLabel checks the characters of a DNS label, of any length.
func dnsLabel(name string) bool {
	for i := range len(name) {
		if c := name[i]; !lowerOrDigit(c) && (c != '-' || i == 0 || i == len(name)-1) {
			return false
		}
	}
	return name != ""
}

// labelName checks the name in a label key, which is also what a label value may be.
func labelName(name string) bool {
	for i := range len(name) {
		c := name[i]
		inside := (c == '-' || c == '_' || c == '.') && i > 0 && i < len(name)-1
		if !inside && !lowerOrDigit(c) && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return name != "" && len(name) <= validation.LabelValueMaxLength
}

func lowerOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
