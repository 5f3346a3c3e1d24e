// Package admission is the chain of plug-ins that complete and judge a write
// before and after it is validated. Each plug-in is a folder in plugin/; their
// order is one list in server.
package admission

import (
	"context"
	"slices"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// Operation is what a write does.
type Operation int

const (
	// Create makes an object, or posts to a subresource.
	Create Operation = iota
	// Update replaces an object or a part of it: PUT, PATCH and server-side apply.
	Update
	// Delete removes an object, or begins to.
	Delete
	// Connect opens a connection to what an object stands for.
	Connect
)

// String returns the operation as webhooks and policies name it.
func (o Operation) String() string {
	return [...]string{"CREATE", "UPDATE", "DELETE", "CONNECT"}[o]
}

// Names are a kind and its resource in one version.
type Names struct {
	Kind     schema.GroupVersionKind
	Resource schema.GroupVersionResource
}

// Options are the options of a write.
type Options struct {
	DryRun bool
	// FieldManager owns the fields that the write sets.
	FieldManager string
	// FieldValidation is Ignore, Warn or Strict.
	FieldValidation string
	// Force lets server-side apply take fields from other managers; nil for other writes.
	Force *bool
	// Patch says that the write is a PATCH.
	Patch bool
	// Delete are the options of a deletion.
	Delete *metav1.DeleteOptions
}

// Attributes say what a write is about.
type Attributes struct {
	Operation Operation
	// Resource is the resource as the request names it: Requested.Resource without its version.
	Resource schema.GroupResource
	// Requested are the names that the request used, Stored those of the version that is stored. Of a
	// write to a subresource with a kind of its own both have that kind.
	Requested, Stored Names
	Subresource       string
	// Name is empty while it is to be generated.
	Namespace, Name string
	// Object is the object as it would become, in its kind's storage version, or what was posted to a
	// subresource; nil for a deletion. Old is the object before, nil on Create; it must not be changed.
	Object, Old registry.Object
	Options     Options
	// User sent the request; nil is the server itself.
	User *request.User
}

// Is says whether the write is to resource itself, by one of operations.
func (a *Attributes) Is(resource schema.GroupResource, operations ...Operation) bool {
	return a.Subresource == "" && a.Resource == resource && slices.Contains(operations, a.Operation)
}

// OptionsObject returns the options as the API object that webhooks and policies are given; nil for a
// connection.
func (a *Attributes) OptionsObject() runtime.Object {
	o := &a.Options
	var dryRun []string
	if o.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: name}
	}
	switch {
	case a.Operation == Connect:
		return nil
	case a.Operation == Delete:
		options := &metav1.DeleteOptions{}
		if o.Delete != nil {
			options = o.Delete.DeepCopy()
		}
		options.TypeMeta = kind("DeleteOptions")
		return options
	case o.Patch:
		return &metav1.PatchOptions{
			TypeMeta: kind("PatchOptions"), DryRun: dryRun, Force: o.Force, FieldManager: o.FieldManager,
			FieldValidation: o.FieldValidation,
		}
	case a.Operation == Update:
		return &metav1.UpdateOptions{
			TypeMeta: kind("UpdateOptions"), DryRun: dryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation,
		}
	}
	return &metav1.CreateOptions{
		TypeMeta: kind("CreateOptions"), DryRun: dryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation,
	}
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

// A Plugin is one entry of a chain. Its functions ignore writes that do not concern it, may be nil and
// are called concurrently. The errors they return are what the client is answered.
type Plugin struct {
	// Name is the name in kube-apiserver's --enable-admission-plugins.
	Name string
	// Mutate may change a.Object. It runs before the object is prepared and
	// validated and after its managedFields were made: what it sets has no owner.
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
