// Package networking declares the kinds of the networking.k8s.io API group.
package networking

import (
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
)

const group = "networking.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	r := rules{addresses: core.NewAddressRules(gates), letterFirst: !gates.Enabled(features.RelaxedServiceNameValidation)}
	return []*registry.Kind{ingressClass(), ingress(r), ipAddress(), networkPolicy(r), serviceCIDR(gates)}
}

// rules are rules of validation that depend on gates. The zero value has those of the gates' defaults.
type rules struct {
	addresses   core.AddressRules
	letterFirst bool // names of Services begin with a letter (RelaxedServiceNameValidation is off)
}
