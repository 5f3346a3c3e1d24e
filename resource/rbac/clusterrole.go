package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func clusterRole() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "rbac",
		Resource: "clusterroles", Singular: "clusterrole", Name: "ClusterRole",
		MetaOnUpdate: registry.MetaWhole,
		Versions:     []registry.Version{declare.Version("v1", func() *rbacv1.ClusterRole { return &rbacv1.ClusterRole{} }, nil)},
		Storage:      "v1", StoragePath: "clusterroles",
		CreateOnUpdate: true, UnconditionalUpdate: true,
		ValidateName: declare.PathSegment,
		Hooks: registry.HooksOf(registry.TypedHooks[*rbacv1.ClusterRole]{
			Validate:       func(_ context.Context, r *rbacv1.ClusterRole) field.ErrorList { return validateClusterRole(r) },
			ValidateUpdate: func(_ context.Context, r, _ *rbacv1.ClusterRole) field.ErrorList { return validateClusterRole(r) },
		}),
	}
}
