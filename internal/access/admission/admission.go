// Package admission is the chain of plug-ins that change and check a write before and after it is validated. Each
// plug-in is a folder in plugin/; package plugin has their order.
package admission

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/storage"
)

// Operation is the kind of a write.
type Operation int

const (
	// Create makes an object, or posts to a subresource.
	Create Operation = iota
	// Update replaces an object or a part of it: PUT, PATCH and server-side apply.
	Update
	// Delete removes an object, or only marks it for deletion because of its finalizers or its grace period.
	Delete
	// Connect opens a connection through an object, such as exec in a pod or the proxy of a Service.
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
	// OwnManager is true if the request names no field manager. FieldManager then comes from the User-Agent
	// header.
	OwnManager bool
	// FieldValidation is Ignore, Warn or Strict.
	FieldValidation string
	// Force lets server-side apply take fields from other managers; nil for other writes.
	Force *bool
	// Delete are the options of a deletion.
	Delete *metav1.DeleteOptions
	// Collection is true if the object is deleted because its whole collection is deleted.
	Collection bool
}

// Attributes describe a write.
type Attributes struct {
	Operation Operation
	// Resource is the resource as the request names it: Requested.Resource without its version.
	Resource schema.GroupResource
	// Requested has the names in the request, and Stored those of the storage version. If a subresource has a kind
	// of its own, both have this kind.
	Requested, Stored Names
	Subresource       string
	// Name is the name in the request. It is empty in the mutating pass if it is going to be generated, and in a deletion
	// of a collection, as in kube-apiserver.
	Namespace, Name string
	// Object is the new object in the storage version of its kind, or the body that was posted to a subresource.
	// It is nil for a deletion, and an Unstructured with the options for a connection. Old is the object before
	// the write, nil on Create; it must not be changed.
	Object, Old registry.Object
	Options     Options
	// A mutating plug-in sets Reinvoke after a change of the object that earlier plug-ins may have to see. The
	// chain then runs all mutating plug-ins once more. Reinvoked is true in that second pass.
	Reinvoke, Reinvoked bool
	// Notes has the data that mutating plug-ins keep for the second pass, by the name of the plug-in; nil if there
	// are none.
	Notes map[string]any
	// User sent the request; nil is the server itself.
	User *request.User
	// Conflicts are the failed side writes of earlier attempts at this write, in order. Only Plugin.Charge may depend
	// on them.
	Conflicts []*storage.ConflictError
}

// Is reports whether the write is on resource itself, not on a subresource, and is one of operations.
func (a *Attributes) Is(resource schema.GroupResource, operations ...Operation) bool {
	return a.Subresource == "" && a.Resource == resource && slices.Contains(operations, a.Operation)
}

// NamespaceName returns the namespace of the write as policies see it. For a write to a Namespace it is the name
// of that Namespace.
func (a *Attributes) NamespaceName() string {
	if a.Resource == corev1.Resource("namespaces") {
		return a.Name
	}
	return a.Namespace
}

// OptionsObject returns the options as the API object that webhooks and policies get; nil for a connection. For a
// PATCH it has the kind CreateOptions or UpdateOptions, depending on whether the PATCH creates the object, as in
// kube-apiserver.
func (a *Attributes) OptionsObject() runtime.Object {
	o := &a.Options
	var dryRun []string
	if o.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	manager := o.FieldManager
	if o.OwnManager {
		manager = ""
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
	case a.Operation == Update:
		return &metav1.UpdateOptions{
			TypeMeta: kind("UpdateOptions"), DryRun: dryRun, FieldManager: manager, FieldValidation: o.FieldValidation,
		}
	}
	return &metav1.CreateOptions{
		TypeMeta: kind("CreateOptions"), DryRun: dryRun, FieldManager: manager, FieldValidation: o.FieldValidation,
	}
}

// Forbidden returns a plug-in's refusal. An object whose name is not generated yet is named by its generateName.
func (a *Attributes) Forbidden(err error) *kerrors.StatusError {
	return kerrors.NewForbidden(a.Resource, a.displayName(), err)
}

// Forbiddenf is Forbidden with the error of fmt.Errorf.
func (a *Attributes) Forbiddenf(format string, args ...any) *kerrors.StatusError {
	return a.Forbidden(fmt.Errorf(format, args...))
}

// displayName returns the name of the object in errors: "Unknown" if it has none.
func (a *Attributes) displayName() string {
	switch {
	case a.Name != "":
		return a.Name
	case a.Object == nil:
	case a.Object.GetName() != "":
		return a.Object.GetName()
	case a.Object.GetGenerateName() != "":
		return a.Object.GetGenerateName()
	}
	return "Unknown"
}

// A Plugin is one entry of a chain. Its functions may be nil and are called concurrently. They ignore writes that are
// not relevant to them. Their errors are sent to the client.
type Plugin struct {
	// Name is the name in kube-apiserver's --enable-admission-plugins.
	Name string
	// Mutate may change a.Object, or replace it by another object of the same type. It runs before the object is prepared and
	// validated and after its managedFields were made: what it sets has no owner. It may run a second time
	// for the same write: see Attributes.Reinvoke.
	Mutate func(ctx context.Context, a *Attributes) error
	// Validate checks the object that is going to be stored; it must not change it.
	Validate func(ctx context.Context, a *Attributes) error
	// Charge checks the object as Validate does, after Validate of all plug-ins, and returns the side writes; nil means
	// none. It is called again with the conflict in a.Conflicts if a condition of its side writes failed. Only writes
	// that store an object are charged, not deletions and other POSTs.
	Charge func(ctx context.Context, a *Attributes) (*Charge, error)
}

// A Charge is a change of other objects that belongs to a write, such as the usage of a quota.
type Charge struct {
	// SideWrites are written in the transaction of the object, or before it if the object is in another store. A
	// dry run does not write them.
	registry.SideWrites
	// Store is where the side writes go.
	Store storage.Store
	// Done is called once: with the revision at which the side writes have been written, or with 0 if they were
	// not. It may be nil.
	Done func(revision int64)
}

// Pass is one of the two passes of a chain over a write.
type Pass int

const (
	// Mutating is the pass that may change the object.
	Mutating Pass = iota
	// Validating is the pass that may only refuse it.
	Validating
)

// String returns the pass as kube-apiserver's metrics name it.
func (p Pass) String() string { return [...]string{"admit", "validate"}[p] }

// Chain runs plug-ins in order; the first error ends it. A nil chain admits
// everything.
type Chain struct {
	// replacement is the chain that later writes use (see Replace); nil if this chain was not replaced.
	replacement atomic.Pointer[Chain]

	passes   [2][]step
	whole    [2]*timer // time whole passes, by Pass
	charging []chargeStep
	observed bool
}

// step is a plug-in in one pass.
type step struct {
	timer *timer
	run   func(ctx context.Context, a *Attributes) error
}

// chargeStep is a plug-in that charges writes.
type chargeStep struct {
	timer *timer
	run   func(ctx context.Context, a *Attributes) (*Charge, error)
}

// NewChain returns a chain of plug-ins, the first one first. The observer may be nil.
func NewChain(observer Observer, plugins ...Plugin) *Chain {
	c := &Chain{observed: observer != nil}
	c.whole = [2]*timer{passTimer(observer, Mutating), passTimer(observer, Validating)}
	for _, p := range plugins {
		if p.Mutate != nil {
			c.passes[Mutating] = append(c.passes[Mutating], step{pluginTimer(observer, p.Name, Mutating), p.Mutate})
		}
		if p.Validate != nil {
			c.passes[Validating] = append(c.passes[Validating], step{pluginTimer(observer, p.Name, Validating), p.Validate})
		}
		if p.Charge != nil {
			c.charging = append(c.charging, chargeStep{pluginTimer(observer, p.Name, Validating), p.Charge})
		}
	}
	return c
}

// Replace makes Current of c return other, so that writes that begin later use other. other must not be nil.
func (c *Chain) Replace(other *Chain) { c.replacement.Store(other) }

// Current returns the chain for a write that begins now: the argument of the last call of Replace, or c itself if
// there was none. All passes over one write have to use the same chain.
func (c *Chain) Current() *Chain {
	if c == nil {
		return nil
	}
	if other := c.replacement.Load(); other != nil {
		return other
	}
	return c
}

// Mutate runs Mutate of the plug-ins. If one of them has set Attributes.Reinvoke, it runs all of them a second
// time.
func (c *Chain) Mutate(ctx context.Context, a *Attributes) error {
	if c == nil {
		return nil
	}
	err := c.run(ctx, a, Mutating)
	if err == nil && a.Reinvoke {
		a.Reinvoked = true
		err = c.run(ctx, a, Mutating)
	}
	return err
}

// Validate runs the plug-ins' Validate.
func (c *Chain) Validate(ctx context.Context, a *Attributes) error {
	if c == nil {
		return nil
	}
	return c.run(ctx, a, Validating)
}

// Charge calls Charge of the plug-ins. The caller has to call Done of all charges, also of those that are returned
// together with an error.
func (c *Chain) Charge(ctx context.Context, a *Attributes) (charges []*Charge, err error) {
	if c == nil {
		return nil, nil
	}
	for i := range c.charging {
		step, begin := &c.charging[i], time.Now()
		charge, err := step.run(ctx, a)
		step.timer.record(a.Operation, err != nil, time.Since(begin))
		if charge != nil {
			charges = append(charges, charge)
		}
		if err != nil {
			return charges, err
		}
	}
	return charges, nil
}

func (c *Chain) run(ctx context.Context, a *Attributes, pass Pass) (err error) {
	if !c.observed {
		for i := range c.passes[pass] {
			if err = c.passes[pass][i].run(ctx, a); err != nil {
				return err
			}
		}
		return nil
	}
	begin := time.Now()
	var took time.Duration // up to the end of the last plug-in
	for i := range c.passes[pass] {
		step := &c.passes[pass][i]
		err = step.run(ctx, a)
		before := took
		took = time.Since(begin) // costs half of time.Now
		if step.timer.record(a.Operation, err != nil, took-before); err != nil {
			break
		}
	}
	c.whole[pass].record(a.Operation, err != nil, took)
	return err
}
