// Package networking declares the kinds of the networking.k8s.io API group.
package networking

import "github.com/keelson-dev/keelson/internal/object/registry"

const group = "networking.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	return []*registry.Kind{ingressClass(), ingress(), ipAddress(), networkPolicy(), serviceCIDR()}
}
