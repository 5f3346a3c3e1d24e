package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

func role() *registry.Kind {
	return &registry.Kind{
		Names:    registry.Names{Group: group, Package: "rbac", Resource: "roles", Name: "Role", Namespaced: true},
		Versions: []registry.Version{declare.Version[rbacv1.Role]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "roles"},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true},
		Metadata: registry.Metadata{ValidateName: declare.PathSegment, OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*rbacv1.Role]{
			Validate: func(r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) },
		}.Untyped(),
	}
}
