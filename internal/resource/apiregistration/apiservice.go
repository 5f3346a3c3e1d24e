// Package apiregistration declares the kinds of the apiregistration.k8s.io API
// group.
package apiregistration

import (
	"time"

	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds() []*registry.Kind { return []*registry.Kind{apiService()} }

func apiService() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: "apiregistration.k8s.io", Package: "apiregistration", Resource: "apiservices", Name: "APIService",
			Categories: []string{"api-extensions"},
		},
		Versions: []registry.Version{declare.Version("v1", func(s *apiregistrationv1.APIService) {
			if s.Spec.Service != nil {
				declare.Pointer(&s.Spec.Service.Port, 443)
			}
		})},
		Storage: registry.Storage{Version: "v1", Path: "apiregistration.k8s.io/apiservices", JSON: true},
		Metadata: registry.Metadata{
			// The name for the core group ends with a dot: "v1.".
			ValidateName: path.ValidatePathSegmentName,
			AnyFinalizer: true, Repeated: true, OnUpdate: registry.MetaWhole,
		},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*apiregistrationv1.APIService]{
			StatusKeepsMeta: true,
			// A group that this server serves itself is available at once.
			PrepareCreate: func(s *apiregistrationv1.APIService) {
				if s.Spec.Service == nil {
					s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
						Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue,
						Reason: "Local", Message: "Local APIServices are always available",
						LastTransitionTime: metav1.NewTime(time.Now()),
					}}
				}
			},
			Validate: validate,
		}.Untyped(),
		Table: registry.Table[*apiregistrationv1.APIService]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Service", "string", "The reference to the service that hosts this API endpoint."),
				table.Column("Available", "string", "Whether this service is available."),
				table.Age,
			},
			Cells: func(s *apiregistrationv1.APIService) []any {
				service := "Local"
				if ref := s.Spec.Service; ref != nil {
					service = ref.Namespace + "/" + ref.Name
				}
				return []any{s.Name, service, availability(s), table.AgeOf(s.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// availability returns the cell of the column Available: True, or for example False (ServiceNotFound).
func availability(s *apiregistrationv1.APIService) string {
	for _, c := range s.Status.Conditions {
		if c.Type != apiregistrationv1.Available {
			continue
		}
		if c.Status == apiregistrationv1.ConditionTrue {
			return "True"
		}
		return string(c.Status) + " (" + c.Reason + ")"
	}
	return "Unknown"
}
