package flowcontrol

import (
	"cmp"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func flowSchema() *registry.Kind {
	spec := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{Group: group, Package: "flowcontrol", Resource: "flowschemas", Name: "FlowSchema"},
		Versions: []registry.Version{declare.Version("v1", func(f *flowcontrolv1.FlowSchema) {
			// A lower number is matched first.
			declare.Value(&f.Spec.MatchingPrecedence, 1000)
		})},
		Storage:      registry.Storage{Version: "v1", Path: "flowschemas"},
		Metadata:     registry.Metadata{OnUpdate: registry.MetaNew},
		Requests:     registry.Requests{UnconditionalUpdate: true},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy:     strategy(validateFlowSchema),
		Table: registry.Table[*flowcontrolv1.FlowSchema]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("PriorityLevel", "string", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
				table.Column("MatchingPrecedence", "string", spec["matchingPrecedence"]),
				table.Column("DistinguisherMethod", "string", spec["distinguisherMethod"]),
				table.Age,
				table.Column("MissingPL", "string", "references a broken or non-existent PriorityLevelConfiguration"),
			},
			Cells: func(f *flowcontrolv1.FlowSchema) []any {
				method, missing := table.None, "?"
				if m := f.Spec.DistinguisherMethod; m != nil {
					method = string(m.Type)
				}
				for _, c := range f.Status.Conditions {
					if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
						missing = string(c.Status)
						break
					}
				}
				return []any{f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), method,
					table.AgeOf(f.CreationTimestamp), missing}
			},
			// Rows are in the order in which a request is compared with the schemas.
			Compare: func(a, b *flowcontrolv1.FlowSchema) int {
				return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
			},
		}.Untyped(),
	}
}
