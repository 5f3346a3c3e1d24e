package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func roleBinding() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "rbac", Resource: "rolebindings", Name: "RoleBinding", Namespaced: true,
		},
		Versions: []registry.Version{declare.Version("v1", func(b *rbacv1.RoleBinding) {
			defaultRoleRef(&b.RoleRef)
			defaultSubjects(b.Subjects)
		})},
		Storage:  registry.Storage{Version: "v1", Path: "rolebindings"},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true},
		Metadata: registry.Metadata{ValidateName: declare.PathSegment, OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*rbacv1.RoleBinding]{
			Validate: func(b *rbacv1.RoleBinding) field.ErrorList {
				// A ClusterRole grants its permissions only in the namespace of the binding here.
				return validateBinding(b.RoleRef, b.Subjects, true, "Role", "ClusterRole")
			},
			ValidateUpdate: func(b, old *rbacv1.RoleBinding) field.ErrorList {
				return validateRoleRefKept(b.RoleRef, old.RoleRef)
			},
		}.Untyped(),
		Table: registry.Table[*rbacv1.RoleBinding]{
			Columns: bindingColumns(
				"roleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the "+
					"RoleRef cannot be resolved, the Authorizer must return an error.", "roleBinding"),
			Cells: func(b *rbacv1.RoleBinding) []any {
				return bindingCells(&b.ObjectMeta, b.RoleRef, b.Subjects)
			},
		}.Untyped(),
	}
}
