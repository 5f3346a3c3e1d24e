// Package flowcontrol declares the kinds of the flowcontrol.apiserver.k8s.io API
// group.
package flowcontrol

import (
	"context"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

const group = "flowcontrol.apiserver.k8s.io"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	return []*registry.Kind{flowSchema(), priorityLevelConfiguration()}
}

// strategy completes the strategy of a kind, of which validate checks all objects.
func strategy[T registry.Object](s registry.Strategy[T], validate func(T) field.ErrorList) registry.Strategy[registry.Object] {
	s.Generation, s.StatusKeepsMeta = true, true
	s.PrepareStatusUpdate = func(_ context.Context, o, old T) {
		o.SetGenerateName(old.GetGenerateName()) // kube-apiserver keeps all metadata
	}
	s.Validate = func(_ context.Context, o T) field.ErrorList { return validate(o) }
	s.ValidateUpdate = func(_ context.Context, o, _ T) field.ErrorList { return validate(o) }
	s.ValidateStatusUpdate = s.ValidateUpdate
	return s.Untyped()
}
