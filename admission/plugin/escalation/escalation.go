// Package escalation keeps users from granting by roles and bindings what they
// are not allowed themselves, unless they may "escalate" the role or "bind" it.
//
// It is not an admission plug-in that an operator could switch off. In a chain it
// is the last that mutates: it judges what the others made, before validation.
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

	"github.com/keelson-dev/keelson/admission"
	"github.com/keelson-dev/keelson/apierr"
	"github.com/keelson-dev/keelson/auth/authz"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/request"
)

// Holdings know the rules that users hold and that roles have, as of every
// acknowledged write.
type Holdings interface {
	// RoleRules returns the rules of the role that a binding in namespace ("" for
	// the cluster) refers to; an error of reason NotFound if there is none.
	RoleRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error)
	// ConfirmNoEscalation returns an error that lists what of the rules a user does not
	// hold in a namespace, nil if that is nothing. resource is what the request is for.
	ConfirmNoEscalation(ctx context.Context, u *request.User, namespace string, resource schema.GroupResource,
		rules []rbacv1.PolicyRule) error
}

// everything are the rules that allow all.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// Plugin judges writes of the four kinds of RBAC.
func Plugin(z authz.Authorizer, h Holdings) admission.Plugin {
	g := guard{z, h}
	return admission.Plugin{Name: "RBACEscalation", Mutate: g.judge}
}

type guard struct {
	authorizer authz.Authorizer
	holdings   Holdings
}

// judge lets pass what the server does by itself, which no user asked for, and
// what members of system:masters do.
func (g guard) judge(ctx context.Context, a *admission.Attributes) error {
	if a.Operation == admission.Delete || a.Resource.Group != rbacv1.GroupName || a.Subresource != "" {
		return nil
	}
	u := request.UserFrom(ctx)
	if u == nil || u.InGroup(request.GroupMasters) || onlyOwnersChange(a) {
		return nil
	}
	switch obj := a.Object.(type) {
	case *rbacv1.Role:
		return g.role(ctx, u, a, obj.Rules, false)
	case *rbacv1.ClusterRole:
		old, _ := a.Old.(*rbacv1.ClusterRole)
		return g.role(ctx, u, a, obj.Rules, aggregates(obj) || old != nil && aggregates(old))
	case *rbacv1.RoleBinding:
		return g.binding(ctx, u, a, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return g.binding(ctx, u, a, obj.RoleRef)
	}
	return nil
}

// aggregates says whether the role gathers the rules of others: it can come to
// have any.
func aggregates(r *rbacv1.ClusterRole) bool {
	return r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

// onlyOwnersChange says whether an update changes no more than what the garbage
// collector has to.
func onlyOwnersChange(a *admission.Attributes) bool {
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
	// What the client left out, or cannot change, is no change.
	changed.GetObjectKind().SetGroupVersionKind(a.Old.GetObjectKind().GroupVersionKind())
	return equality.Semantic.DeepEqual(changed, a.Old)
}

func (g guard) role(
	ctx context.Context, u *request.User, a *admission.Attributes, rules []rbacv1.PolicyRule, aggregate bool,
) error {
	if g.allowed(ctx, u, a.Resource, "escalate", a.Namespace, requestName(ctx)) {
		return nil
	}
	if err := g.holdings.ConfirmNoEscalation(ctx, u, a.Namespace, a.Resource, rules); err != nil {
		return forbidden(a, err)
	}
	if !aggregate {
		return nil
	}
	if err := g.holdings.ConfirmNoEscalation(ctx, u, a.Namespace, a.Resource, everything); err != nil {
		return forbidden(a, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

func (g guard) binding(ctx context.Context, u *request.User, a *admission.Attributes, ref rbacv1.RoleRef) error {
	resource := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	if resource != "" &&
		g.allowed(ctx, u, schema.GroupResource{Group: ref.APIGroup, Resource: resource}, "bind", a.Namespace, ref.Name) {
		return nil
	}
	if err := findable(ref, a.Namespace); err != nil {
		return err
	}
	rules, err := g.holdings.RoleRules(ctx, ref, a.Namespace)
	if kerrors.IsNotFound(err) {
		// kube-apiserver names the resource of the request here.
		return kerrors.NewNotFound(a.Resource, ref.Name)
	}
	if err != nil {
		return err
	}
	if err := g.holdings.ConfirmNoEscalation(ctx, u, a.Namespace, a.Resource, rules); err != nil {
		return forbidden(a, err)
	}
	return nil
}

// findable refuses references that no role can be found by. Validation comes later
// and knows more: this is what somebody is told who may not bind whatever it is.
func findable(ref rbacv1.RoleRef, namespace string) error {
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

// allowed asks for a verb that lets its holder go beyond its own permissions.
// What cannot be decided is not allowed.
func (g guard) allowed(
	ctx context.Context, u *request.User, resource schema.GroupResource, verb, namespace, name string,
) bool {
	decision, _, _ := g.authorizer.Authorize(ctx, authz.Attributes{User: u, Info: &request.Info{
		Verb: verb, Group: resource.Group, Version: "*", Resource: resource.Resource, Namespace: namespace, Name: name,
	}})
	return decision == authz.Allow
}

// requestName is the name in the request's path: a POST has none there.
func requestName(ctx context.Context) string {
	if info := request.InfoFrom(ctx); info != nil {
		return info.Name
	}
	return ""
}

func forbidden(a *admission.Attributes, err error) error {
	return kerrors.NewForbidden(a.Resource, a.Object.GetName(), err)
}
