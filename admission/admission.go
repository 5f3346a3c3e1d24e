// Package admission is the chain of plug-ins that complete and judge a write
// before and after it is validated. Each plug-in is a folder in plugin/; their
// order is one list in server.
package admission

import (
	"context"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/registry"
)

// Operation is what a write does.
type Operation int

const (
	// Create makes an object, or posts to a subresource.
	Create Operation = iota
	// Update replaces an object or a part of it.
	Update
)

// Attributes say what a write is about. Object is the object as it would become,
// in its kind's storage version, or what was posted to a subresource; Old is the
// object before, nil on Create, and must not be changed.
type Attributes struct {
	Operation Operation
	// Resource is the resource as the request names it.
	Resource    schema.GroupResource
	Subresource string
	// Name is empty while it is to be generated.
	Namespace, Name string
	Object, Old     registry.Object
	DryRun          bool
}

// Is says whether the write is to resource itself, by one of operations.
func (a *Attributes) Is(resource schema.GroupResource, operations ...Operation) bool {
	if a.Subresource != "" || a.Resource != resource {
		return false
	}
	for _, o := range operations {
		if o == a.Operation {
			return true
		}
	}
	return false
}

// Forbidden is a plug-in's refusal. It names an object without a name by what its
// name begins with.
func (a *Attributes) Forbidden(err error) *kerrors.StatusError {
	name := a.Name
	if name == "" && a.Object != nil {
		name = a.Object.GetGenerateName()
	}
	return kerrors.NewForbidden(a.Resource, name, err)
}

// A Plugin is one entry of a chain. Its functions ignore writes that are none of
// its business, may be nil and are called concurrently. The errors they return
// are what the client is answered.
type Plugin struct {
	// Name is the name in the reference's --enable-admission-plugins.
	Name string
	// Mutate may change a.Object. It runs before the object is prepared and
	// validated and after its managedFields were: what it sets has no owner.
	Mutate func(ctx context.Context, a *Attributes) error
	// Validate judges the object that is going to be stored; it must not change
	// it.
	Validate func(ctx context.Context, a *Attributes) error
}

// Chain runs plug-ins in order; the first error ends it. A nil chain admits
// everything.
type Chain struct{ plugins []Plugin }

// NewChain makes a chain of plug-ins, the first one first.
func NewChain(plugins ...Plugin) *Chain { return &Chain{plugins} }

// Mutate runs the plug-ins' Mutate.
func (c *Chain) Mutate(ctx context.Context, a *Attributes) error {
	if c == nil {
		return nil
	}
	for i := range c.plugins {
		if f := c.plugins[i].Mutate; f != nil {
			if err := f(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate runs the plug-ins' Validate.
func (c *Chain) Validate(ctx context.Context, a *Attributes) error {
	if c == nil {
		return nil
	}
	for i := range c.plugins {
		if f := c.plugins[i].Validate; f != nil {
			if err := f(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}
