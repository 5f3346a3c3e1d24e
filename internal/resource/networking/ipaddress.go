package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// ipAddress returns the kind of IPAddresses (KEP-1880). The object with the name of an address is its reservation:
// only one such object can exist, so no two Services get the same address.
func ipAddress() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "networking", Resource: "ipaddresses", Name: "IPAddress",
			ShortNames: []string{"ip"},
		},
		Versions: []registry.Version{
			declare.Version[networkingv1.IPAddress]("v1", nil),
			declare.SameMessage[networkingv1beta1.IPAddress, networkingv1.IPAddress]("v1beta1", nil),
		},
		Storage:  registry.Storage{Version: "v1", Path: "ipaddresses"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{
			// The name is the address itself, in canonical form.
			ValidateName: func(name string, _ bool) []string {
				// For example, 192.168.1.5 is valid, and 192.168.001.005 is not; 2001:db8::1 is valid, and
				// 2001:DB8::1 is not.
				return declare.Texts(validation.IsValidIP(nil, name), func(err *field.Error) string { return err.Detail })
			},
			OnUpdate: registry.MetaWhole,
		},
		Strategy: registry.Strategy[*networkingv1.IPAddress]{
			Validate: func(a *networkingv1.IPAddress) field.ErrorList {
				return validateParent(a.Spec.ParentRef, field.NewPath("spec", "parentRef"))
			},
			ValidateUpdate: func(a, old *networkingv1.IPAddress) field.ErrorList {
				// An address goes to another parent only by a deletion and a creation, so that it is free in
				// between.
				return declare.Unchanged(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))
			},
		}.Untyped(),
		Table: registry.Table[*networkingv1.IPAddress]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				// Like in kube-apiserver, rows have an additional cell, the age, without a column.
				table.Column("ParentRef", "string", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]),
			},
			Cells: func(a *networkingv1.IPAddress) []any {
				parent := table.None
				if r := a.Spec.ParentRef; r != nil {
					parent = r.Resource
					if r.Group != "" {
						parent += "." + r.Group
					}
					if r.Namespace != "" {
						parent += "/" + r.Namespace
					}
					parent += "/" + r.Name
				}
				return []any{a.Name, parent, table.AgeOf(a.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// validateParent validates the reference to the object that has the address. The core group
// has an empty name.
func validateParent(p *networkingv1.ParentReference, path *field.Path) field.ErrorList {
	if p == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := field.IfSet(path.Child("group"), p.Group, field.DNSSubdomain)
	errs = append(errs, field.NotEmptyAnd(path.Child("resource"), p.Resource, field.PathSegment)...)
	errs = append(errs, field.NotEmptyAnd(path.Child("name"), p.Name, field.PathSegment)...)
	return append(errs, field.IfSet(path.Child("namespace"), p.Namespace, field.PathSegment)...)
}
