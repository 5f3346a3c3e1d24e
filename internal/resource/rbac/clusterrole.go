package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// clusterRole declares ClusterRoles. As for all kinds of RBAC, names may be any path segment, because built-in
// roles have names such as system:node.
func clusterRole() *registry.Kind {
	return &registry.Kind{
		Names:    registry.Names{Group: group, Package: "rbac", Resource: "clusterroles", Name: "ClusterRole"},
		Versions: []registry.Version{declare.Version[rbacv1.ClusterRole]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "clusterroles"},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true},
		Metadata: registry.Metadata{ValidateName: declare.PathSegment, OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*rbacv1.ClusterRole]{
			Validate: validateClusterRole,
		}.Untyped(),
	}
}
