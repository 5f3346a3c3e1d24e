// Package flowcontrol declares the kinds of the flowcontrol.apiserver.k8s.io API
// group.
package flowcontrol

import "github.com/keelson-dev/keelson/internal/object/registry"

const group = "flowcontrol.apiserver.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	return []*registry.Kind{flowSchema(), priorityLevelConfiguration()}
}
