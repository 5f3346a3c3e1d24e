// Package scheduling declares the kinds of the scheduling.k8s.io API group.
package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	var kinds []*registry.Kind
	if gates.Enabled(features.CompositePodGroup) {
		kinds = append(kinds, compositePodGroup(gates))
	}
	if !gates.Enabled(features.GenericWorkload) {
		return append(kinds, priorityClass())
	}
	return append(kinds, podGroupKind(gates), priorityClass(), workload(gates))
}

func priorityClass() *registry.Kind {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: schedulingv1.GroupName, Package: "scheduling", Resource: "priorityclasses", Name: "PriorityClass",
			ShortNames: []string{"pc"},
		},
		Versions: []registry.Version{declare.Version("v1", func(c *schedulingv1.PriorityClass) {
			declare.Pointer(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
		})},
		Storage:  registry.Storage{Version: "v1", Path: "priorityclasses"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Strategy: registry.Strategy[*schedulingv1.PriorityClass]{
			// The generation is always 1.
			Generation:     true,
			GenerationOf:   func(*schedulingv1.PriorityClass) any { return nil },
			ValidateCreate: validateClass,
			ValidateUpdate: func(c, old *schedulingv1.PriorityClass) field.ErrorList {
				// Pods have copies of the value and of the policy from when they were created. A changed class
				// would say something else than its pods have.
				errs := field.ForbiddenIf(c.Value != old.Value, field.NewPath("value"), "may not be changed in an update.")
				return append(errs,
					declare.Immutable(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
			},
		}.Untyped(),
		Deletion: registry.Deletion[*schedulingv1.PriorityClass]{
			Before: func(c *schedulingv1.PriorityClass) error { return forbidSystemClassDeletion(c.Name) },
		}.Untyped(),
		Table: registry.Table[*schedulingv1.PriorityClass]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Value", "integer", doc["value"]),
				table.Column("Global-Default", "boolean", doc["globalDefault"]),
				table.Age,
				table.Column("PreemptionPolicy", "string", doc["preemptionPolicy"]),
			},
			Cells: func(c *schedulingv1.PriorityClass) []any {
				return []any{c.Name, int64(c.Value), c.GlobalDefault, table.AgeOf(c.CreationTimestamp),
					string(ptr.Deref(c.PreemptionPolicy, ""))}
			},
		}.Untyped(),
	}
}
