package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func role() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "rbac",
		Resource: "roles", Singular: "role", Name: "Role",
		MetaOnUpdate: registry.MetaWhole,
		Namespaced:   true,
		Versions:     []registry.Version{declare.Version("v1", func() *rbacv1.Role { return &rbacv1.Role{} }, nil)},
		Storage:      "v1", StoragePath: "roles",
		CreateOnUpdate: true, UnconditionalUpdate: true,
		ValidateName: declare.PathSegment,
		Hooks: registry.HooksOf(registry.TypedHooks[*rbacv1.Role]{
			Validate:       func(_ context.Context, r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) },
			ValidateUpdate: func(_ context.Context, r, _ *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) },
		}),
	}
}
