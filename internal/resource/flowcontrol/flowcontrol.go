// Package flowcontrol declares the kinds of the flowcontrol.apiserver.k8s.io API
// group.
package flowcontrol

import (
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const group = "flowcontrol.apiserver.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	return []*registry.Kind{flowSchema(), priorityLevelConfiguration()}
}

// strategy returns the strategy of a kind, of which validate checks all objects.
// A write of the status is validated as a whole object, too: the controller of flow control writes it, and the
// specs of mandatory objects stay checked.
func strategy[T registry.Object](validate func(T) field.ErrorList) registry.UntypedStrategy {
	return registry.Strategy[T]{
		Generation:      true,
		StatusKeepsMeta: true,
		PrepareStatusUpdate: func(o, old T) {
			o.SetGenerateName(old.GetGenerateName()) // kube-apiserver keeps all metadata
		},
		Validate:             validate,
		ValidateStatusUpdate: func(o, _ T) field.ErrorList { return validate(o) },
	}.Untyped()
}
