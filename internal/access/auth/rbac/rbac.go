// Package rbac is the authorization mode RBAC. It watches Roles, ClusterRoles and their
// bindings and keeps an index of them by subject, so that a decision looks only at the
// bindings of the user.
package rbac

import (
	"context"
	"log/slog"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/object/registry/informer"
)

// Authorizer implements authz.Authorizer and authz.RuleResolver. A change of a role or a
// binding takes effect shortly after it was acknowledged.
type Authorizer struct {
	index     *Index
	informers []*informer.Informer
}

// New returns an Authorizer that has no roles, and so allows nothing, until Start.
func New() *Authorizer { return &Authorizer{index: NewIndex()} }

// Start loads the objects and watches them in the background. It is called once, before
// requests are served.
func (a *Authorizer) Start(
	ctx context.Context, reg *registry.Registry, log *slog.Logger, background informer.Background,
) (err error) {
	var options []informer.Options
	for _, kind := range a.kinds(log) {
		options = append(options, informer.Options{
			Resource: reg.Resource(rbacv1.Resource(kind.resource)),
			Reset: func(all []informer.Change) {
				kind.set(all)
				kind.retain(containedIn(all))
			},
			Apply: kind.set, Stored: true, Log: log,
		})
	}
	a.informers, err = informer.Start(ctx, background, "RBAC: ", options...)
	return err
}

// indexedResource describes how the objects of one resource are indexed.
type indexedResource struct {
	resource string
	set      func([]informer.Change)
	// retain removes the objects for which keep returns false.
	retain func(keep func(namespace, name string) bool)
}

// kinds returns the four resources in the order in which they are loaded: roles before
// bindings.
func (a *Authorizer) kinds(log *slog.Logger) []indexedResource {
	x := a.index
	roles, bindings := setter(log, x.setRole, x.DeleteRole), setter(log, x.setBinding, x.DeleteBinding)
	return []indexedResource{
		{"clusterroles", roles, func(keep func(string, string) bool) { x.retainRoles(true, keep) }},
		{"roles", roles, func(keep func(string, string) bool) { x.retainRoles(false, keep) }},
		{"clusterrolebindings", bindings, func(keep func(string, string) bool) { x.retainBindings(true, keep) }},
		{"rolebindings", bindings, func(keep func(string, string) bool) { x.retainBindings(false, keep) }},
	}
}

// setter returns a function that applies changes to the index. An object that cannot be decoded allows nothing.
func setter(
	log *slog.Logger, set func(informer.Change) error, remove func(namespace, name string),
) func([]informer.Change) {
	return func(changes []informer.Change) {
		for _, c := range changes {
			if c.Stored != nil {
				err := set(c)
				if err == nil {
					continue
				}
				log.Error("RBAC: an object cannot be read", "namespace", c.Namespace, "name", c.Name, "error", err)
			}
			remove(c.Namespace, c.Name)
		}
	}
}

// containedIn returns a function that reports whether an object is in the list.
func containedIn(all []informer.Change) func(namespace, name string) bool {
	there := make(map[objectKey]bool, len(all))
	for _, c := range all {
		if c.Stored != nil {
			there[objectKey{c.Namespace, c.Name}] = true
		}
	}
	return func(namespace, name string) bool { return there[objectKey{namespace, name}] }
}

func (ind *Index) setRole(c informer.Change) error {
	rules, err := decodeRules(c.Stored.Data)
	if err == nil {
		ind.SetRole(c.Namespace, c.Name, rules)
	}
	return err
}

func (ind *Index) setBinding(c informer.Change) error {
	ref, subjects, err := decodeBinding(c.Stored.Data)
	if err == nil {
		ind.SetBinding(c.Namespace, c.Name, ref, subjects)
	}
	return err
}

// Authorize implements authz.Authorizer.
func (a *Authorizer) Authorize(_ context.Context, at authz.Attributes) (authz.Decision, string, error) {
	allowed, reason := a.index.Decide(at.User, at.Info)
	if allowed {
		return authz.Allow, reason, nil
	}
	return authz.NoOpinion, reason, nil
}

// RulesFor implements authz.RuleResolver.
func (a *Authorizer) RulesFor(_ context.Context, u *request.User, namespace string) (authz.Rules, error) {
	rules, err := a.index.Rules(u, namespace)
	var out authz.Rules
	for _, r := range rules {
		if len(r.Resources) > 0 {
			out.Resource = append(out.Resource, authorizationv1.ResourceRule{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			out.NonResource = append(out.NonResource,
				authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return out, err
}

// sync waits until the index contains every write that was acknowledged before the call.
func (a *Authorizer) sync(ctx context.Context) error {
	for _, f := range a.informers {
		if err := f.Sync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// RoleRules returns the rules of the role that a binding in the namespace refers to. It takes
// every acknowledged write into account.
func (a *Authorizer) RoleRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	if err := a.sync(ctx); err != nil {
		return nil, err
	}
	return a.index.RoleRules(ref, namespace)
}

// ConfirmNoEscalation returns nil if the user has all permissions of the rules in the
// namespace, and otherwise an error that lists the missing ones, for a request for the given
// resource. It takes every acknowledged write into account.
func (a *Authorizer) ConfirmNoEscalation(
	ctx context.Context, u *request.User, namespace string, resource schema.GroupResource, rules []rbacv1.PolicyRule,
) error {
	if err := a.sync(ctx); err != nil {
		return err
	}
	return a.index.ConfirmNoEscalation(u, namespace, resource, rules)
}
