package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/resource/core"
	"github.com/keelson-dev/keelson/resource/internal/declare"
)

func serviceCIDR() *registry.Kind {
	return &registry.Kind{
		Group: group, Package: "networking",
		Resource: "servicecidrs", Singular: "servicecidr", Name: "ServiceCIDR",
		Versions: []registry.Version{declare.Version("v1", func() *networkingv1.ServiceCIDR { return &networkingv1.ServiceCIDR{} }, nil)},
		Storage:  "v1", StoragePath: "servicecidrs",
		UnconditionalUpdate: true,
		Subresources:        []registry.Subresource{declare.Status()},
		Columns: []metav1.TableColumnDefinition{
			core.NameColumn,
			declare.Column("CIDRs", "string", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]),
			core.AgeColumn,
		},
		Hooks: registry.HooksOf(registry.TypedHooks[*networkingv1.ServiceCIDR]{
			Spec:   func(c *networkingv1.ServiceCIDR) any { return &c.Spec },
			Status: func(c *networkingv1.ServiceCIDR) any { return &c.Status },
			Cells: declare.Cells(func(c *networkingv1.ServiceCIDR) []any {
				return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), core.Age(c.CreationTimestamp)}
			}),
		}),
	}
}
