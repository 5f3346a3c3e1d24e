// Package policy declares the kinds of the policy API group.
package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

const group = "policy"

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{podDisruptionBudget()} }

// podDisruptionBudget returns the kind of PodDisruptionBudgets. Unlike for most kinds, a PUT must have the
// resourceVersion of the object. The eviction subresource of pods counts down status.disruptionsAllowed.
func podDisruptionBudget() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "policy", Resource: "poddisruptionbudgets", Name: "PodDisruptionBudget",
			ShortNames: []string{"pdb"}, Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[policyv1.PodDisruptionBudget]("v1", nil)},
		Storage:  registry.Storage{Version: "v1", Path: "poddisruptionbudgets"},
		Metadata: registry.Metadata{
			// kube-apiserver does not validate the name of a PodDisruptionBudget.
			ValidateName: func(string, bool) []string { return nil },
			AnyFinalizer: true, Last: true, OnUpdate: registry.MetaNothing, OnStatusUpdate: registry.MetaNothing,
		},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*policyv1.PodDisruptionBudget]{
			Generation: true,
			Validate:   validatePodDisruptionBudget,
			ValidateStatusUpdate: func(o, _ *policyv1.PodDisruptionBudget) field.ErrorList {
				return validateBudgetStatus(&o.Status, field.NewPath("status"))
			},
		}.Untyped(),
		Table: registry.Table[*policyv1.PodDisruptionBudget]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Min Available", "string", "The minimum number of pods that must be available."),
				table.Column("Max Unavailable", "string", "The maximum number of pods that may be unavailable."),
				table.Column("Allowed Disruptions", "integer", "Calculated number of pods that may be disrupted at this time."),
				table.Age,
			},
			Cells: func(b *policyv1.PodDisruptionBudget) []any {
				least, most := "N/A", "N/A"
				if n := b.Spec.MinAvailable; n != nil {
					least = n.String()
				}
				if n := b.Spec.MaxUnavailable; n != nil {
					most = n.String()
				}
				return []any{b.Name, least, most, int64(b.Status.DisruptionsAllowed), table.AgeOf(b.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
