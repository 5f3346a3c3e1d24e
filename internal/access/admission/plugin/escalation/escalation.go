// Package escalation refuses roles and bindings by which users would grant permissions that they do not have,
// unless they have the verb "escalate" on the role, or the verb "bind" on the role of the binding.
//
// It cannot be switched off, unlike the plug-ins of --enable-admission-plugins. It is the last mutating plug-in of the
// chain, so it sees the changes of the others, and runs before validation.
package escalation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// RuleResolver returns the rules of roles and compares them with the permissions of users. It considers every
// acknowledged write.
type RuleResolver interface {
	// RoleRules returns the rules of the role that a binding in namespace ("" for a ClusterRoleBinding) refers to. If
	// there is no such role, the error has the reason NotFound.
	RoleRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error)
	// ConfirmNoEscalation returns an error that lists the rules that a user does not have in a namespace, or nil if the
	// user has all of them. resource is the resource of the request.
	ConfirmNoEscalation(ctx context.Context, u *request.User, namespace string, resource schema.GroupResource,
		rules []rbacv1.PolicyRule) error
}

// allRules are the rules that allow everything.
var allRules = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// Plugin returns the plug-in, which checks writes of the four kinds of RBAC.
func Plugin(z authz.Authorizer, h RuleResolver) admission.Plugin {
	return admission.Plugin{Name: "RBACEscalation", Mutate: checker{z, h}.check}
}

// checker is the state of the plug-in.
type checker struct {
	authorizer authz.Authorizer
	rules      RuleResolver
}

// check returns nil for writes of the server itself, which have no user, and of members of system:masters.
func (c checker) check(ctx context.Context, a *admission.Attributes) error {
	if a.Operation == admission.Delete || a.Resource.Group != rbacv1.GroupName || a.Subresource != "" {
		return nil
	}
	u := request.UserFrom(ctx)
	if u == nil || u.InGroup(request.GroupMasters) || changesOnlyOwners(a) {
		return nil
	}
	switch obj := a.Object.(type) {
	case *rbacv1.Role:
		return c.checkRole(ctx, u, a, obj.Rules, false)
	case *rbacv1.ClusterRole:
		old, _ := a.Old.(*rbacv1.ClusterRole)
		return c.checkRole(ctx, u, a, obj.Rules, aggregates(obj) || old != nil && aggregates(old))
	case *rbacv1.RoleBinding:
		return c.checkBinding(ctx, u, a, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return c.checkBinding(ctx, u, a, obj.RoleRef)
	}
	return nil
}

// aggregates reports whether the role gets the rules of other roles, which may be any rules.
func aggregates(r *rbacv1.ClusterRole) bool {
	return r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

// changesOnlyOwners reports whether an update changes only fields that the garbage collector changes.
func changesOnlyOwners(a *admission.Attributes) bool {
	if a.Old == nil {
		return false
	}
	changed, ok := a.Object.DeepCopyObject().(registry.Object)
	if !ok {
		return false
	}
	changed.SetOwnerReferences(a.Old.GetOwnerReferences())
	changed.SetFinalizers(a.Old.GetFinalizers())
	changed.SetSelfLink(a.Old.GetSelfLink())
	changed.SetManagedFields(a.Old.GetManagedFields())
	// An object of a client may lack apiVersion and kind, which is not a change.
	changed.GetObjectKind().SetGroupVersionKind(a.Old.GetObjectKind().GroupVersionKind())
	return equality.Semantic.DeepEqual(changed, a.Old)
}

// checkRole checks the rules of a role. aggregate means that the role gets the rules of other roles.
func (c checker) checkRole(
	ctx context.Context, u *request.User, a *admission.Attributes, rules []rbacv1.PolicyRule, aggregate bool,
) error {
	if c.allowed(ctx, u, a.Resource, "escalate", a.Namespace, requestName(ctx)) {
		return nil
	}
	if err := c.rules.ConfirmNoEscalation(ctx, u, a.Namespace, a.Resource, rules); err != nil {
		return forbidden(a, err)
	}
	if !aggregate {
		return nil
	}
	if err := c.rules.ConfirmNoEscalation(ctx, u, a.Namespace, a.Resource, allRules); err != nil {
		return forbidden(a, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// checkBinding checks the rules of the role of a binding.
func (c checker) checkBinding(ctx context.Context, u *request.User, a *admission.Attributes, ref rbacv1.RoleRef) error {
	resource := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	if resource != "" &&
		c.allowed(ctx, u, schema.GroupResource{Group: ref.APIGroup, Resource: resource}, "bind", a.Namespace, ref.Name) {
		return nil
	}
	if err := validateRoleRef(ref, a.Namespace); err != nil {
		return err
	}
	rules, err := c.rules.RoleRules(ctx, ref, a.Namespace)
	if kerrors.IsNotFound(err) {
		// As in kube-apiserver, the error names the resource of the request instead of the resource of the role.
		return kerrors.NewNotFound(a.Resource, ref.Name)
	}
	if err != nil {
		return err
	}
	if err := c.rules.ConfirmNoEscalation(ctx, u, a.Namespace, a.Resource, rules); err != nil {
		return forbidden(a, err)
	}
	return nil
}

// validateRoleRef refuses references to roles that cannot exist. The validation of the binding would find this too, but
// it runs later.
func validateRoleRef(ref rbacv1.RoleRef, namespace string) error {
	switch {
	case ref.Kind != "Role" && ref.Kind != "ClusterRole":
		return apierr.New(http.StatusInternalServerError, "", fmt.Sprintf("unsupported role reference kind: %q", ref.Kind))
	case ref.Kind == "Role" && namespace == "":
		return kerrors.NewBadRequest("Namespace parameter required.")
	case ref.Name == "":
		return kerrors.NewBadRequest("Name parameter required.")
	}
	if texts := path.IsValidPathSegmentName(ref.Name); len(texts) > 0 {
		return kerrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", ref.Name, strings.Join(texts, ";")))
	}
	return nil
}

// allowed reports whether the user may use the verb "escalate" or "bind", which permit grants beyond the user's
// own permissions. An error of the authorizer means no.
func (c checker) allowed(
	ctx context.Context, u *request.User, resource schema.GroupResource, verb, namespace, name string,
) bool {
	decision, _, _ := authz.Further(ctx, c.authorizer, authz.Attributes{User: u, Info: &request.Info{
		Verb: verb, Group: resource.Group, Version: "*", Resource: resource.Resource, Namespace: namespace, Name: name,
	}})
	return decision == authz.Allow
}

// requestName returns the name in the path of the request, which is "" for a POST.
func requestName(ctx context.Context) string {
	if info := request.InfoFrom(ctx); info != nil {
		return info.Name
	}
	return ""
}

func forbidden(a *admission.Attributes, err error) error {
	return kerrors.NewForbidden(a.Resource, a.Object.GetName(), err)
}
