package escalation

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/access/auth/rbac"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// held are the rules that every user has, in all namespaces. As a RuleResolver it knows two roles.
type held []rbacv1.PolicyRule

func (h held) RoleRules(_ context.Context, ref rbacv1.RoleRef, _ string) ([]rbacv1.PolicyRule, error) {
	switch ref.Name {
	case "strong":
		return []rbacv1.PolicyRule{secrets}, nil
	case "weak":
		return []rbacv1.PolicyRule{configs}, nil
	}
	return nil, kerrors.NewNotFound(rbacv1.Resource("role"), ref.Name)
}

func (h held) ConfirmNoEscalation(
	_ context.Context, u *request.User, _ string, resource schema.GroupResource, rules []rbacv1.PolicyRule,
) error {
	x := rbac.NewIndex()
	x.SetRole("", "held", h)
	x.SetBinding("", "held", rbacv1.RoleRef{Kind: "ClusterRole", Name: "held"},
		[]rbacv1.Subject{{Kind: "User", Name: u.Name}})
	return x.ConfirmNoEscalation(u, "", resource, rules)
}

// permits is an authorizer that allows these requests, each written "verb resource/name".
type permits map[string]bool

func (p permits) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if p[a.Info.Verb+" "+a.Info.Resource+"/"+a.Info.Name] {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

var (
	secrets = rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}}
	configs = rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}
)

func role(rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "ns"}, Rules: rules}
}

func clusterRole(aggregates bool, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: rules}
	if aggregates {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	}
	return r
}

func binding(kind, name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
	}
}

func finalized(r *rbacv1.Role) *rbacv1.Role {
	r.Finalizers = []string{"example.com/f"}
	return r
}

func labelled(r *rbacv1.Role) *rbacv1.Role {
	r.Labels = map[string]string{"a": "b"}
	return r
}

func TestGrantsAreHeldAgainstTheUsersOwn(t *testing.T) {
	user := &request.User{Name: "ella", Groups: []string{request.GroupAuthenticated}}
	const lacks = "is attempting to grant RBAC permissions not currently held"
	for name, c := range map[string]struct {
		resource string
		obj, old registry.Object
		permits  permits
		user     *request.User
		name     string // in the path
		want     string // part of the refusal, "" for none
	}{
		"a role of what is held": {resource: "roles", obj: role(configs)},
		"a role of more":         {resource: "roles", obj: role(configs, secrets), want: lacks},
		"a role of everything":   {resource: "roles", obj: role(allRules[0]), want: lacks},
		"an update to more": {resource: "roles", obj: role(secrets), old: role(configs),
			want: lacks},
		"an update of the labels of a stronger role": {resource: "roles", obj: labelled(role(secrets)), old: role(secrets),
			want: lacks},
		"finalizers of a stronger role": {resource: "roles", obj: finalized(role(secrets)), old: role(secrets)},
		"escalate": {resource: "roles", obj: role(secrets), permits: permits{"escalate roles/r": true},
			name: "r"},
		"escalate of another role": {resource: "roles", obj: role(secrets),
			permits: permits{"escalate roles/other": true}, name: "r", want: lacks},
		"system:masters": {resource: "roles", obj: role(secrets),
			user: &request.User{Name: "a", Groups: []string{request.GroupMasters}}},
		"an aggregate": {resource: "clusterroles", obj: clusterRole(true),
			want: "must have cluster-admin privileges to use the aggregationRule"},
		"no aggregate any more": {resource: "clusterroles", obj: clusterRole(false), old: clusterRole(true),
			want: "must have cluster-admin privileges"},
		"a cluster role of what is held": {resource: "clusterroles", obj: clusterRole(false, configs)},
		"a binding of what is held":      {resource: "rolebindings", obj: binding("Role", "weak")},
		"a binding of more":              {resource: "rolebindings", obj: binding("Role", "strong"), want: lacks},
		"bind": {resource: "rolebindings", obj: binding("ClusterRole", "strong"),
			permits: permits{"bind clusterroles/strong": true}},
		"bind of the role of that name": {resource: "rolebindings", obj: binding("ClusterRole", "strong"),
			permits: permits{"bind roles/strong": true}, want: lacks},
		"bind of what is not there": {resource: "rolebindings", obj: binding("Role", "gone"),
			permits: permits{"bind roles/gone": true}},
		"a binding of what is not there": {resource: "rolebindings", obj: binding("Role", "gone"),
			want: `rolebindings.rbac.authorization.k8s.io "gone" not found`},
		"a reference to another kind": {resource: "rolebindings", obj: binding("Robot", "strong"),
			permits: permits{"bind /strong": true}, want: `unsupported role reference kind: "Robot"`},
		"a reference to nothing": {resource: "rolebindings", obj: binding("Role", ""),
			want: "Name parameter required."},
		"a reference to what cannot be": {resource: "rolebindings", obj: binding("ClusterRole", "a/b"),
			want: `Name parameter invalid: "a/b": may not contain '/'`},
		"a role for the whole cluster": {resource: "clusterrolebindings", want: "Namespace parameter required.",
			obj: &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "b"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "weak"},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			u := user
			if c.user != nil {
				u = c.user
			}
			ctx := request.WithInfo(request.WithUser(t.Context(), u), &request.Info{Name: c.name})
			a := &admission.Attributes{Resource: rbacv1.Resource(c.resource), Namespace: c.obj.GetNamespace(), Object: c.obj}
			if c.old != nil {
				a.Old, a.Operation = c.old, admission.Update
			}
			err := Plugin(c.permits, held{configs}).Mutate(ctx, a)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			case c.want == lacks && !kerrors.IsForbidden(err):
				t.Errorf("%v is not Forbidden", err)
			}
		})
	}
}

func TestWritesOfTheServerAreNotChecked(t *testing.T) {
	a := &admission.Attributes{Resource: rbacv1.Resource("roles"), Namespace: "ns", Object: role(secrets)}
	if err := Plugin(permits{}, held{}).Mutate(t.Context(), a); err != nil {
		t.Error(err)
	}
}
