package networking

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

func networkPolicy(r rules) *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "networking", Resource: "networkpolicies", Name: "NetworkPolicy",
			ShortNames: []string{"netpol"}, Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[networkingv1.NetworkPolicy]("v1", defaultNetworkPolicy)},
		Storage:  registry.Storage{Version: "v1", Path: "networkpolicies"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Strategy: registry.Strategy[*networkingv1.NetworkPolicy]{
			Generation: true,
			// A change from nil to an empty list increments the generation, too.
			GenerationOf: func(p *networkingv1.NetworkPolicy) any { return declare.ExactText(p.Spec) },
			ValidateCreate: func(o *networkingv1.NetworkPolicy) field.ErrorList {
				return r.validateNetworkPolicy(o, nil)
			},
			ValidateUpdate: r.validateNetworkPolicy,
			Warn:           networkPolicyWarnings,
		}.Untyped(),
		Table: registry.Table[*networkingv1.NetworkPolicy]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Pod-Selector", "string", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]),
				table.Age,
			},
			Cells: func(p *networkingv1.NetworkPolicy) []any {
				return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), table.AgeOf(p.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// defaultNetworkPolicy sets the defaults of networking.k8s.io/v1. The type Ingress is always a default, and Egress
// only if there are rules for it. A policy that denies all egress has no such rules, so it must name Egress
// itself.
func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	ports := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			declare.Pointer(&ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
	for i := range p.Spec.Ingress {
		ports(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		ports(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) != 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}
