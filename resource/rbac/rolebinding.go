package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func roleBinding() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "rbac",
		Resource: "rolebindings", Singular: "rolebinding", Name: "RoleBinding",
		MetaOnUpdate: registry.MetaWhole,
		Namespaced:   true,
		Versions: []registry.Version{declare.Version("v1", func() *rbacv1.RoleBinding { return &rbacv1.RoleBinding{} }, func(b *rbacv1.RoleBinding) {
			defaultRoleRef(&b.RoleRef)
			defaultSubjects(b.Subjects)
		})},
		Storage: "v1", StoragePath: "rolebindings",
		CreateOnUpdate: true, UnconditionalUpdate: true,
		Columns:      bindingColumns("RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.", "roleBinding"),
		ValidateName: declare.PathSegment,
		Hooks: registry.HooksOf(registry.TypedHooks[*rbacv1.RoleBinding]{
			Validate: func(_ context.Context, b *rbacv1.RoleBinding) field.ErrorList {
				return validateBinding(b.RoleRef, b.Subjects, true, "Role", "ClusterRole")
			},
			ValidateUpdate: func(_ context.Context, b, old *rbacv1.RoleBinding) field.ErrorList {
				errs := validateBinding(b.RoleRef, b.Subjects, true, "Role", "ClusterRole")
				if b.RoleRef == old.RoleRef {
					return errs
				}
				return append(errs, field.Invalid(field.NewPath("roleRef"), declare.Internal(b.RoleRef), "cannot change roleRef"))
			},
			Cells: declare.Cells(func(b *rbacv1.RoleBinding) []any { return bindingCells(&b.ObjectMeta, b.RoleRef, b.Subjects) }),
		}),
	}
}
