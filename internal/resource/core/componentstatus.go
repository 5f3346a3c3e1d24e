package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// componentStatuses declares a read-only kind that is not stored.
func componentStatuses() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "componentstatuses", Name: "ComponentStatus", ShortNames: []string{"cs"},
		},
		Versions: []registry.Version{{
			Name: "v1", New: func() registry.Object { return &corev1.ComponentStatus{} },
			Warning: "v1 ComponentStatus is deprecated in v1.19+",
		}},
		Storage:  registry.Storage{Version: "v1"},
		Requests: registry.Requests{Verbs: []string{"get", "list"}},
		Table: registry.Table[*corev1.ComponentStatus]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Status", "string", "Status of the component conditions"),
				table.Column("Message", "string", "Message of the component conditions"),
				table.Column("Error", "string", "Error of the component conditions"),
			},
			// Only the condition Healthy has cells; it is the only type that the API defines.
			Cells: func(s *corev1.ComponentStatus) []any {
				status, message, problem := "Unknown", "", ""
				for _, c := range s.Conditions {
					if c.Type != corev1.ComponentHealthy {
						continue
					}
					status = "Unhealthy"
					if c.Status == corev1.ConditionTrue {
						status = "Healthy"
					}
					message, problem = c.Message, c.Error
					break
				}
				return []any{s.Name, status, message, problem}
			},
		}.Untyped(),
	}
}
