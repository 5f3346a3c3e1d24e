// Package rbac declares the kinds of the rbac.authorization.k8s.io API group.
package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

const group = rbacv1.GroupName

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind {
	return []*registry.Kind{clusterRoleBinding(), clusterRole(), roleBinding(), role()}
}

func defaultRoleRef(r *rbacv1.RoleRef) { declare.Value(&r.APIGroup, group) }

// defaultSubjects sets the group of users and groups, which are no API objects but belong to RBAC. A
// ServiceAccount is in the core group, whose name is empty.
func defaultSubjects(subjects []rbacv1.Subject) {
	for i := range subjects {
		if kind := subjects[i].Kind; kind == rbacv1.UserKind || kind == rbacv1.GroupKind {
			declare.Value(&subjects[i].APIGroup, group)
		}
	}
}

// bindingColumns returns the columns of a RoleBinding or a ClusterRoleBinding.
func bindingColumns(roleRef, kind string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		table.Name,
		table.Column("Role", "string", roleRef),
		table.Age,
		table.Wide("Users", "string", "Users in the "+kind),
		table.Wide("Groups", "string", "Groups in the "+kind),
		table.Wide("ServiceAccounts", "string", "ServiceAccounts in the "+kind),
	}
}

// bindingCells returns the cells of a row. The Role is shown with its kind, for example ClusterRole/view, because
// a RoleBinding can have either. The lists are in the order of the subjects.
func bindingCells(meta *metav1.ObjectMeta, ref rbacv1.RoleRef, subjects []rbacv1.Subject) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	list := func(words []string) string { return strings.Join(words, ", ") }
	return []any{
		meta.Name, ref.Kind + "/" + ref.Name, table.AgeOf(meta.CreationTimestamp),
		list(users), list(groups), list(accounts),
	}
}

// validateRoleRefKept returns an error if an update of a binding changes its role.
// A binding to another role is another permission: somebody who may only change the subjects must not be able to
// raise what they get. To change the role, the binding is deleted and created again.
func validateRoleRefKept(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), declare.Internal(ref), "field is immutable")}
}
