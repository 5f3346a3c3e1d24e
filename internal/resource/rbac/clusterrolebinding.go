package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func clusterRoleBinding() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "rbac", Resource: "clusterrolebindings", Name: "ClusterRoleBinding",
		},
		Versions: []registry.Version{declare.Version("v1", func(b *rbacv1.ClusterRoleBinding) {
			defaultRoleRef(&b.RoleRef)
			defaultSubjects(b.Subjects)
		})},
		Storage:  registry.Storage{Version: "v1", Path: "clusterrolebindings"},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true},
		Metadata: registry.Metadata{ValidateName: declare.PathSegment, OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*rbacv1.ClusterRoleBinding]{
			Validate: func(b *rbacv1.ClusterRoleBinding) field.ErrorList {
				// A Role is refused, because it belongs to one namespace and the binding to none.
				return validateBinding(b.RoleRef, b.Subjects, false, "ClusterRole")
			},
			ValidateUpdate: func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
				return validateRoleRefKept(b.RoleRef, old.RoleRef)
			},
		}.Untyped(),
		Table: registry.Table[*rbacv1.ClusterRoleBinding]{
			Columns: bindingColumns(
				"roleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, "+
					"the Authorizer must return an error.", "clusterRoleBinding"),
			Cells: func(b *rbacv1.ClusterRoleBinding) []any {
				return bindingCells(&b.ObjectMeta, b.RoleRef, b.Subjects)
			},
		}.Untyped(),
	}
}
