// Package discovery declares the kinds of the discovery.k8s.io API group.
package discovery

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// Kinds returns the kinds of the group in the order of discovery.
func Kinds(gates features.Gates) []*registry.Kind {
	return []*registry.Kind{endpointSlice(rules{core.NewAddressRules(gates)})}
}

func endpointSlice(r rules) *registry.Kind {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: "discovery.k8s.io", Package: "discovery", Resource: "endpointslices", Name: "EndpointSlice",
			Namespaced: true,
		},
		Versions: []registry.Version{declare.Version("v1", func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				// kube-proxy and other readers need not tell a missing name from an empty one.
				declare.Pointer(&s.Ports[i].Name, "")
				declare.Pointer(&s.Ports[i].Protocol, corev1.ProtocolTCP)
			}
		})},
		Storage:  registry.Storage{Version: "v1", Path: "endpointslices"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{OnUpdate: registry.MetaNewUnnamed},
		Strategy: registry.Strategy[*discoveryv1.EndpointSlice]{
			// The generation is set here, because the comparison uses the slice as the client
			// has sent it, before the deprecated topology is removed.
			PrepareCreate: func(s *discoveryv1.EndpointSlice) {
				s.Generation = 1
				dropDeprecatedTopology(s, nil)
			},
			PrepareUpdate: func(s, old *discoveryv1.EndpointSlice) {
				if !equality.Semantic.DeepEqual(generationContent(s), generationContent(old)) {
					s.Generation = old.Generation + 1
				}
				if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
					dropDeprecatedTopology(s, old.Endpoints)
				}
			},
			ValidateCreate: func(s *discoveryv1.EndpointSlice) field.ErrorList {
				return r.validateSlice(s, nil)
			},
			ValidateUpdate: func(s, old *discoveryv1.EndpointSlice) field.ErrorList {
				errs := append(r.validateSlice(s, old),
					declare.Unchanged(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
				return append(errs, validateGenerateName(s.GenerateName)...)
			},
			Warn: warnSlice,
		}.Untyped(),
		Table: registry.Table[*discoveryv1.EndpointSlice]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("AddressType", "string", doc["addressType"]),
				table.Column("Ports", "string", doc["ports"]),
				table.Column("Endpoints", "string", doc["endpoints"]),
				table.Age,
			},
			Cells: func(s *discoveryv1.EndpointSlice) []any {
				return []any{s.Name, string(s.AddressType), ports(s.Ports), endpoints(s.Endpoints), table.AgeOf(s.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// endpointSliceControllers do not get warnings about addresses: they copy addresses of others.
var endpointSliceControllers = []string{"endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"}

// warnSlice returns warnings about the deprecated address type, only on create, and about addresses such as
// 010.0.0.1 that programs read differently. The first one names a field spec.addressType, which does not exist,
// as kube-apiserver does.
func warnSlice(s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if s.AddressType == discoveryv1.AddressTypeFQDN && old == nil {
		warnings = append(warnings, field.NewPath("spec", "addressType").String()+": FQDN endpoints are deprecated")
	}
	if s.AddressType == discoveryv1.AddressTypeFQDN ||
		slices.Contains(endpointSliceControllers, s.Labels[discoveryv1.LabelManagedBy]) {
		return warnings
	}
	for i := range s.Endpoints {
		warnings = append(warnings, field.WarnEach(field.NewPath("endpoints").Index(i).Child("addresses"),
			s.Endpoints[i].Addresses, validation.GetWarningsForIP)...)
	}
	return warnings
}

// generationContent returns the fields whose changes increment the generation: everything
// except metadata, and the labels, because they name the Service.
func generationContent(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Labels: s.Labels},
		AddressType: s.AddressType, Endpoints: s.Endpoints, Ports: s.Ports,
	}
}

// ports returns the cell of the column Ports: the first three ports, such as 80,443. A port without a number is
// shown by its name.
func ports(list []discoveryv1.EndpointPort) string {
	words := make([]string, len(list))
	for i, port := range list {
		switch {
		case port.Port != nil:
			words[i] = strconv.Itoa(int(*port.Port))
		case port.Name != nil:
			words[i] = *port.Name
		default:
			words[i] = "*"
		}
	}
	return table.OrUnset(table.FirstOf(words, 3, ","))
}

func endpoints(list []discoveryv1.Endpoint) string {
	var words []string
	for _, e := range list {
		words = append(words, e.Addresses...)
	}
	return table.OrUnset(table.FirstOf(words, 3, ","))
}

// dropDeprecatedTopology removes the deprecated topology, which clients of v1 can only read.
// If the old slice has a node name only there, it becomes the nodeName of the endpoint.
func dropDeprecatedTopology(s *discoveryv1.EndpointSlice, old []discoveryv1.Endpoint) {
	// known has the nodes that old endpoints have as the only entry of their topology. A client of v1 that reads
	// such an endpoint and writes it back must not lose the node.
	known := map[string]bool{}
	for i := range old {
		if node, there := old[i].DeprecatedTopology[corev1.LabelHostname]; there && len(old[i].DeprecatedTopology) == 1 {
			known[node] = true
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		node, there := e.DeprecatedTopology[corev1.LabelHostname]
		if e.NodeName == nil && there && known[node] && len(e.DeprecatedTopology) == 1 {
			e.NodeName = &node
		}
		e.DeprecatedTopology = nil
	}
}
