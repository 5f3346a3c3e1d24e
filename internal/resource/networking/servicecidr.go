package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// serviceCIDR returns the kind of ServiceCIDRs (KEP-1880): the ranges from which Services get their addresses.
func serviceCIDR(gates features.Gates) *registry.Kind {
	wipes := gates.Enabled(features.ServiceCIDRStatusFieldWiping)
	k := &registry.Kind{
		Names: registry.Names{Group: group, Package: "networking", Resource: "servicecidrs", Name: "ServiceCIDR"},
		Versions: []registry.Version{
			declare.Version[networkingv1.ServiceCIDR]("v1", nil),
			declare.SameMessage[networkingv1beta1.ServiceCIDR, networkingv1.ServiceCIDR]("v1beta1", nil),
		},
		Storage:      registry.Storage{Version: "v1", Path: "servicecidrs"},
		Requests:     registry.Requests{UnconditionalUpdate: true},
		Subresources: []registry.Subresource{declare.Status("spec", "metadata")},
		Strategy: registry.Strategy[*networkingv1.ServiceCIDR]{
			StatusKeepsMeta: true,
			ValidateCreate: func(c *networkingv1.ServiceCIDR) field.ErrorList {
				return validateCIDRs(c.Spec.CIDRs, field.NewPath("spec", "cidrs"))
			},
			ValidateUpdate: func(c, old *networkingv1.ServiceCIDR) field.ErrorList {
				return validateCIDRsUpdate(c.Spec.CIDRs, old.Spec.CIDRs, field.NewPath("spec", "cidrs"))
			},
		}.Untyped(),
		Table: registry.Table[*networkingv1.ServiceCIDR]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("CIDRs", "string", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]),
				table.Age,
			},
			Cells: func(c *networkingv1.ServiceCIDR) []any {
				return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), table.AgeOf(c.CreationTimestamp)}
			},
		}.Untyped(),
	}
	if !wipes { // a write of the object itself may set its status
		k.Strategy.Status = nil
	}
	return k
}

// maxCIDRs is two: one range of each IP family.
const maxCIDRs = 2

// validateCIDRs requires one range, or one of each IP family. The notation must be canonical: 10.96.0.0/12 is
// valid, and 10.96.0.1/12 is not, because it has bits after the prefix.
func validateCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	switch {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case len(cidrs) > maxCIDRs:
		return field.ErrorList{
			field.Invalid(path, declare.Internal(networkingv1.ServiceCIDRSpec{CIDRs: cidrs}), "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i).K8s(), cidr)...)
	}
	if len(cidrs) == maxCIDRs {
		if family := netutils.IPFamilyOfCIDRString(cidrs[0]); family != netutils.IPFamilyUnknown &&
			family == netutils.IPFamilyOfCIDRString(cidrs[1]) {
			errs = append(errs, field.Invalid(path, cidrs,
				"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
	}
	return errs
}

// validateCIDRsUpdate allows to add a range of the other IP family, and no other change.
// Services have addresses of the ranges, so a range cannot change. A second range makes a cluster dual-stack.
// Ranges that an update keeps are validated only when one is added.
func validateCIDRsUpdate(cidrs, old []string, path *field.Path) field.ErrorList {
	const immutable = "field is immutable"
	var errs field.ErrorList
	added := len(old) == 1 && len(cidrs) == maxCIDRs
	if len(cidrs) != len(old) && !added {
		return field.ErrorList{field.Invalid(path, cidrs, immutable)}
	}
	for i := range old {
		errs = append(errs, field.InvalidIf(cidrs[i] != old[i], path.Index(i), cidrs[i], immutable)...)
	}
	if added {
		errs = append(errs, validateCIDRs(cidrs, path)...)
	}
	return errs
}
