// Package lifecycle declares the kinds of the lifecycle.k8s.io API group (KEP-4563): Evictions of pods, in which several
// responders take part one after the other, and the EvictionRequests of those who want them.
package lifecycle

import (
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
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
	if !gates.Enabled(features.EvictionRequestAPI) {
		return nil
	}
	return []*registry.Kind{evictionRequest(), eviction()}
}

type evictionRequestObject = lifecyclev1alpha1.EvictionRequest

func evictionRequest() *registry.Kind {
	spec := lifecyclev1alpha1.EvictionRequestSpec{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: lifecyclev1alpha1.GroupName, Package: "lifecycle", Resource: "evictionrequests", Name: "EvictionRequest",
			Namespaced: true,
		},
		Versions:     []registry.Version{declare.Version[evictionRequestObject]("v1alpha1", nil)},
		Storage:      registry.Storage{Version: "v1alpha1", Path: "evictionrequests"},
		Metadata:     registry.Metadata{ValidateName: anyName},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*evictionRequestObject]{
			Generation: true, StatusKeepsMeta: true,
			ValidateCreate: func(r *evictionRequestObject) field.ErrorList {
				return append(validateName(r.Name), validateRequest(&r.Spec, nil)...)
			},
			ValidateUpdate: func(r, old *evictionRequestObject) field.ErrorList {
				return validateRequest(&r.Spec, &old.Spec)
			},
			ValidateStatusUpdate: func(r, old *evictionRequestObject) field.ErrorList {
				return validateRequestStatus(&r.Status, &old.Status)
			},
		}.Untyped(),
		Table: registry.Table[*evictionRequestObject]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Target", "string", spec["target"]),
				table.Column("Target Type", "string", spec["target"]),
				table.Column("Status", "string", lifecyclev1alpha1.EvictionRequestStatus{}.SwaggerDoc()["conditions"]),
				table.Column("Requester", "string", spec["requester"]),
				table.Column("Intent", "string", spec["intent"]),
				table.Age,
			},
			Cells: func(r *evictionRequestObject) []any {
				name, kind := table.Unset, table.Unset
				if pod := r.Spec.Target.Pod; pod != nil {
					name, kind = pod.Name, "Pod"
				}
				return []any{
					r.Name, name, kind, progress(r.Status.ObservedGeneration, r.Status.Conditions), r.Spec.Requester,
					string(r.Spec.Intent), table.AgeOf(r.CreationTimestamp),
				}
			},
		}.Untyped(),
	}
}

// anyName accepts all names: validateName validates the name of a new object, after its other metadata.
func anyName(string, bool) []string { return nil }

// validateName validates a name by the newer rules of kube-apiserver, which count bytes.
func validateName(name string) field.ErrorList {
	return field.Messages(field.NewPath("metadata", "name"), name, content.IsDNS1123Subdomain(name))
}

// progress returns how far an eviction is, for tables. A controller sets the generation and the conditions.
// TargetEvicted wins over Failed. Without either, a controller that has observed a generation has begun.
func progress(generation *int64, conditions []metav1.Condition) string {
	for _, t := range []lifecyclev1alpha1.EvictionConditionType{
		lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionFailed,
	} {
		if c := meta.FindStatusCondition(conditions, string(t)); c != nil && c.Status == metav1.ConditionTrue {
			return c.Type + " (" + c.Reason + ")"
		}
	}
	if ptr.Deref(generation, 0) > 0 {
		return "Progressing"
	}
	return "Pending"
}
