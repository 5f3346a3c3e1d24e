package core

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func endpoints(gates features.Gates) *registry.Kind {
	addresses := NewAddressRules(gates)
	versions := onlyV1[corev1.Endpoints](func(e *corev1.Endpoints) {
		for i := range e.Subsets {
			for j := range e.Subsets[i].Ports {
				declare.Value(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
			}
		}
	})
	// EndpointSlices replace Endpoints, because one object with all endpoints of a large Service is too big to
	// send at each change (KEP-752).
	versions[0].Warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
	return &registry.Kind{
		Names: registry.Names{
			Package: "core", Resource: "endpoints", Name: "Endpoints", ListName: "EndpointsList",
			ShortNames: []string{"ep"}, Namespaced: true,
		},
		Versions: versions,
		Storage:  registry.Storage{Version: "v1", Path: "services/endpoints"},
		Requests: registry.Requests{CreateOnUpdate: true, UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaWhole},
		Strategy: registry.Strategy[*corev1.Endpoints]{
			ValidateCreate: func(e *corev1.Endpoints) field.ErrorList { return addresses.validateEndpoints(e, nil) },
			ValidateUpdate: addresses.validateEndpoints,
			Warn:           endpointsWarnings,
		}.Untyped(),
		Table: registry.Table[*corev1.Endpoints]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Endpoints", "string", corev1.Endpoints{}.SwaggerDoc()["subsets"]),
				table.Age,
			},
			Cells: func(e *corev1.Endpoints) []any {
				return []any{e.Name, formatEndpoints(e.Subsets), table.AgeOf(e.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// formatEndpoints lists the first three ready endpoints. The list may be empty; there is <none> only without subsets.
func formatEndpoints(subsets []corev1.EndpointSubset) string {
	const most = 3
	if len(subsets) == 0 {
		return table.None
	}
	var all []string
	for _, s := range subsets {
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				all = append(all, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return table.FirstOf(all, most, ",")
}

// validateEndpoints validates Endpoints. old is nil on create. Subsets that the update does
// not change are not validated again, because they may be older than the rules.
func (r AddressRules) validateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		errs = append(errs, field.RequiredIf(len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0, at,
			"must specify `addresses` or `notReadyAddresses`")...)
		errs = append(errs, field.Each(at.Child("addresses"), s.Addresses, r.validateEndpointAddress)...)
		errs = append(errs, field.Each(at.Child("notReadyAddresses"), s.NotReadyAddresses, r.validateEndpointAddress)...)
		for j := range s.Ports {
			errs = append(errs, validateEndpointPort(&s.Ports[j], len(s.Ports) > 1, at.Child("ports").Index(j))...)
		}
	}
	if len(errs) > 0 && old != nil && equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil
	}
	return errs
}

// validateEndpointAddress validates an address. It passes no earlier addresses to ValidateIP, because
// validateEndpoints compares the subsets as a whole.
func (r AddressRules) validateEndpointAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := r.ValidateIP(path.Child("ip"), a.IP, nil)
	errs = append(errs, field.IfSet(path.Child("hostname"), a.Hostname, field.DNSLabel)...)
	errs = append(errs, field.Optional(path.Child("nodeName"), a.NodeName, field.DNSSubdomain)...)
	return append(errs, ValidateEndpointIP(a.IP, path.Child("ip"))...)
}

// validateEndpointPort validates a port. named is true if the subset has several ports, which only names can
// tell apart.
func validateEndpointPort(p *corev1.EndpointPort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, field.DNSLabel(path.Child("name"), p.Name)...)
	} else if named {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, field.PortNumber(path.Child("port"), p.Port)...)
	errs = append(errs, protocol(path.Child("protocol"), p.Protocol)...)
	return append(errs, field.Optional(path.Child("appProtocol"), p.AppProtocol, field.LabelKey)...)
}

// endpointsWarnings returns warnings about the notation of addresses. There are none for
// objects of the endpoints controller.
func endpointsWarnings(e, _ *corev1.Endpoints) []string {
	// The controller copies the addresses of pods, so a user cannot act on the warnings.
	if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil
	}
	var warnings []string
	for i := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range e.Subsets[i].Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(at.Child("addresses").Index(j).Child("ip").K8s(), a.IP)...)
		}
		for j, a := range e.Subsets[i].NotReadyAddresses {
			warnings = append(warnings, validation.GetWarningsForIP(at.Child("notReadyAddresses").Index(j).Child("ip").K8s(), a.IP)...)
		}
	}
	return warnings
}
