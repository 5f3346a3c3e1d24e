package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Objects is where plug-ins look other objects up; *registry.Registry is one.
type Objects interface {
	// Lookup returns an object in its storage version, nil if there is none. It may be slightly out of date.
	Lookup(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
	// List returns all objects of a namespace ("" is all).
	List(ctx context.Context, r schema.GroupResource, namespace string) ([]registry.Object, error)
}

// Namespaces returns the state of a namespace; *registry.Registry implements it.
type Namespaces interface {
	NamespaceState(ctx context.Context, name string) (registry.NamespaceState, error)
}
