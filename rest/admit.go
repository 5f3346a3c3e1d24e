package rest

import (
	"context"

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/managed"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// An admitting is one write on its way through admission. The fields of an
// object that admission sets are owned by nobody: it runs after managedFields
// were made.
type admitting struct {
	chain *admission.Chain
	admission.Attributes
}

// admits begins the admission of a write to s.
func (h *Handler) admits(s *served, namespace, name, subresource string, dryRun bool) admitting {
	return admitting{h.o.Admission, admission.Attributes{
		Resource: s.gr, Subresource: subresource, Namespace: namespace, Name: name, DryRun: dryRun,
	}}
}

// with returns the attributes of the write of obj, which replaces old; a nil old
// makes it a create.
func (a *admitting) with(obj, old registry.Object) *admission.Attributes {
	attributes := a.Attributes
	attributes.Object, attributes.Old = obj, old
	if old != nil {
		attributes.Operation = admission.Update
	}
	return &attributes
}

// mutate lets admission change obj, which is of the storage version.
func (a *admitting) mutate(ctx context.Context, obj, old registry.Object) error {
	return a.chain.Mutate(ctx, a.with(obj, old))
}

// validate lets admission judge obj as it is going to be stored. It is a
// registry.Admit.
func (a *admitting) validate(ctx context.Context, obj, old registry.Object) error {
	return a.chain.Validate(ctx, a.with(obj, old))
}

// admitted wraps what an update makes of the current object in admission.
func (h *Handler) admitted(ctx context.Context, info *request.Info, s *served, o writeOptions, change func(*registry.Current) (registry.Object, error)) func(*registry.Current) (registry.Object, error) {
	a := h.admits(s, info.Namespace, info.Name, info.Subresource, o.dryRun)
	return func(c *registry.Current) (registry.Object, error) {
		obj, err := change(c)
		if err != nil {
			return nil, err
		}
		return obj, a.mutate(ctx, obj, c.Stored())
	}
}

func (h *Handler) updateOptions(info *request.Info, s *served, sub *registry.Subresource, o writeOptions) registry.UpdateOptions {
	a := h.admits(s, info.Namespace, info.Name, info.Subresource, o.dryRun)
	return registry.UpdateOptions{
		DryRun: o.dryRun, Group: s.gr.Group, Subresource: sub,
		Admit: func(ctx context.Context, obj, old registry.Object) error {
			managed.KeepTimes(old, obj)
			return a.validate(ctx, obj, old)
		},
		CreateAdmit: func(ctx context.Context, obj, old registry.Object) error {
			if err := s.admitsNew(obj.GetName()); err != nil {
				return err
			}
			if err := h.mayCreate(ctx, info); err != nil {
				return err
			}
			return a.validate(ctx, obj, old)
		},
	}
}

// mayCreate says whether the user of a PUT or PATCH that found nothing may create
// the object. The server itself, which sends no requests, may.
func (h *Handler) mayCreate(ctx context.Context, info *request.Info) error {
	user := request.UserFrom(ctx)
	if h.o.Authorizer == nil || user == nil {
		return nil
	}
	create := *info
	create.Verb = "create"
	return authz.Check(ctx, h.o.Authorizer, authz.Attributes{User: user, Info: &create})
}
