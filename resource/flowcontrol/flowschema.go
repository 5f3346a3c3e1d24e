package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func flowSchema() *registry.Kind {
	spec := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return &registry.Kind{
		Group: group, Package: "flowcontrol",
		Resource: "flowschemas", Singular: "flowschema", Name: "FlowSchema",
		Versions: []registry.Version{declare.Version("v1", func() *flowcontrolv1.FlowSchema { return &flowcontrolv1.FlowSchema{} }, func(f *flowcontrolv1.FlowSchema) {
			declare.Value(&f.Spec.MatchingPrecedence, 1000)
		})},
		Storage: "v1", StoragePath: "flowschemas",
		UnconditionalUpdate: true,
		Subresources:        []registry.Subresource{declare.Status()},
		Columns: []metav1.TableColumnDefinition{
			core.NameColumn,
			declare.Column("PriorityLevel", "string", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
			declare.Column("MatchingPrecedence", "string", spec["matchingPrecedence"]),
			declare.Column("DistinguisherMethod", "string", spec["distinguisherMethod"]),
			core.AgeColumn,
			declare.Column("MissingPL", "string", "references a broken or non-existent PriorityLevelConfiguration"),
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*flowcontrolv1.FlowSchema]{
			Spec:            func(f *flowcontrolv1.FlowSchema) any { return &f.Spec },
			Status:          func(f *flowcontrolv1.FlowSchema) any { return &f.Status },
			Generation:      true,
			StatusKeepsMeta: true,
			Cells: declare.Cells(func(f *flowcontrolv1.FlowSchema) []any {
				method, missing := core.None, "?"
				if m := f.Spec.DistinguisherMethod; m != nil {
					method = string(m.Type)
				}
				for _, c := range f.Status.Conditions {
					if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
						missing = string(c.Status)
						break
					}
				}
				return []any{f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), method, core.Age(f.CreationTimestamp), missing}
			}),
		}),
	}
}
