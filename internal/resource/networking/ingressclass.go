package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// ingressClass returns the kind of IngressClasses. Before KEP-2365, parameters could only be a cluster-scoped
// object. This is still the default of parameters.scope.
func ingressClass() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{Group: group, Package: "networking", Resource: "ingressclasses", Name: "IngressClass"},
		Versions: []registry.Version{declare.Version("v1", func(c *networkingv1.IngressClass) {
			if p := c.Spec.Parameters; p != nil {
				declare.Pointer(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "ingressclasses"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*networkingv1.IngressClass]{
			Generation:     true,
			ValidateCreate: validateIngressClass,
			ValidateUpdate: validateIngressClassUpdate,
		}.Untyped(),
		Table: registry.Table[*networkingv1.IngressClass]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Controller", "string", "Controller that is responsible for handling this class"),
				table.Column("Parameters", "string", "A reference to a resource with additional parameters"),
				table.Age,
			},
			Cells: func(c *networkingv1.IngressClass) []any {
				parameters := table.None
				if p := c.Spec.Parameters; p != nil {
					parameters = p.Kind
					if p.APIGroup != nil {
						parameters += "." + *p.APIGroup
					}
					parameters += "/" + p.Name
				}
				return []any{c.Name, c.Spec.Controller, parameters, table.AgeOf(c.CreationTimestamp)}
			},
		}.Untyped(),
	}
}
