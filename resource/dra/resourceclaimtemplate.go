package dra

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func resourceClaimTemplate() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "resource",
		Resource: "resourceclaimtemplates", Singular: "resourceclaimtemplate", Name: "ResourceClaimTemplate",
		MetaOnUpdate: registry.MetaWhole,
		Namespaced:   true,
		Versions: []registry.Version{declare.Version("v1", func() *resourcev1.ResourceClaimTemplate { return &resourcev1.ResourceClaimTemplate{} }, func(t *resourcev1.ResourceClaimTemplate) {
			defaultClaimSpec(&t.Spec.Spec)
		})},
		Storage: "v1", StoragePath: "resourceclaimtemplates",
		UnconditionalUpdate: true, ReturnDeleted: true,
		Columns: []metav1.TableColumnDefinition{core.NameColumn, core.AgeColumn},
		Hooks: registry.HooksOf(registry.TypedHooks[*resourcev1.ResourceClaimTemplate]{
			Spec: func(t *resourcev1.ResourceClaimTemplate) any { return &t.Spec },
			ValidateUpdate: func(_ context.Context, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
				return declare.Immutable(t.Spec, old.Spec, field.NewPath("spec"))
			},
			Cells: declare.Cells(func(t *resourcev1.ResourceClaimTemplate) []any {
				return []any{t.Name, core.Age(t.CreationTimestamp)}
			}),
		}),
	}
}
