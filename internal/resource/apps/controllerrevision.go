package apps

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// controllerRevision returns the kind of ControllerRevisions. The controllers of DaemonSets and StatefulSets store
// each template of pods in one, so that a rollback can restore it. The kind has neither a status nor a generation,
// because data never changes.
func controllerRevision() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "apps", Resource: "controllerrevisions", Name: "ControllerRevision",
			Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[appsv1.ControllerRevision]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "controllerrevisions"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*appsv1.ControllerRevision]{
			ValidateCreate: validateControllerRevision,
			ValidateUpdate: validateControllerRevisionUpdate,
		}.Untyped(),
		Table: registry.Table[*appsv1.ControllerRevision]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Controller", "string", "Controller of the object"),
				table.Column("Revision", "string", appsv1.ControllerRevision{}.SwaggerDoc()["revision"]),
				table.Age,
			},
			Cells: func(r *appsv1.ControllerRevision) []any {
				// An example of the cell is daemonset.apps/fluentd.
				controller := table.None
				if owner := metav1.GetControllerOf(r); owner != nil {
					kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
					controller = strings.ToLower(kind.String()) + "/" + owner.Name
				}
				return []any{r.Name, controller, r.Revision, table.AgeOf(r.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
