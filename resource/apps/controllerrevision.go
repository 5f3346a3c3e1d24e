package apps

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func controllerRevision() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "apps",
		Resource: "controllerrevisions", Singular: "controllerrevision", Name: "ControllerRevision",
		MetaOnUpdate: registry.MetaWhole,
		Namespaced:   true,
		Versions:     []registry.Version{declare.Version("v1", func() *appsv1.ControllerRevision { return &appsv1.ControllerRevision{} }, nil)},
		Storage:      "v1", StoragePath: "controllerrevisions",
		UnconditionalUpdate: true,
		Columns: []metav1.TableColumnDefinition{
			core.NameColumn,
			declare.Column("Controller", "string", "Controller of the object"),
			declare.Column("Revision", "string", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]),
			core.AgeColumn,
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*appsv1.ControllerRevision]{
			ValidateUpdate: func(_ context.Context, r, old *appsv1.ControllerRevision) field.ErrorList {
				return declare.Immutable(r.Data, old.Data, field.NewPath("data"))
			},
			Cells: declare.Cells(func(r *appsv1.ControllerRevision) []any {
				controller := core.None
				if owner := metav1.GetControllerOf(r); owner != nil {
					kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
					controller = strings.ToLower(kind.String()) + "/" + owner.Name
				}
				return []any{r.Name, controller, r.Revision, core.Age(r.CreationTimestamp)}
			}),
		}),
	}
}
