package networking

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// classAnnotation is older than the field ingressClassName.
// It is deprecated, but some controllers still read it.
const classAnnotation = "kubernetes.io/ingress.class"

// ingress returns the kind of Ingresses. Their path in etcd has the singular, unlike that of the other kinds of
// the group.
func ingress(r rules) *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "networking", Resource: "ingresses", Name: "Ingress", ShortNames: []string{"ing"},
			Namespaced: true,
		},
		Versions:     []registry.Version{declare.Version[networkingv1.Ingress]("v1", nil)},
		Storage:      registry.Storage{Version: "v1", Path: "ingress"},
		Requests:     registry.Requests{UnconditionalUpdate: true},
		Metadata:     registry.Metadata{OnUpdate: registry.MetaWhole},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*networkingv1.Ingress]{
			Generation: true,
			ValidateCreate: func(o *networkingv1.Ingress) field.ErrorList {
				return append(validateClassAnnotation(o), r.validateIngress(o, nil)...)
			},
			ValidateUpdate:       r.validateIngress,
			ValidateStatusUpdate: r.validateIngressStatusUpdate,
			WarnStatus: func(i *networkingv1.Ingress) []string {
				var warnings []string
				for k, one := range i.Status.LoadBalancer.Ingress {
					warnings = append(warnings, core.WarnIngressAddress(k, one.IP)...)
				}
				return warnings
			},
			Warn: func(i, old *networkingv1.Ingress) []string {
				if _, there := i.Annotations[classAnnotation]; !there || old != nil || i.Spec.IngressClassName != nil {
					return nil
				}
				return []string{`annotation "` + classAnnotation + `" is deprecated, please use 'spec.ingressClassName' instead`}
			},
		}.Untyped(),
		Table: registry.Table[*networkingv1.Ingress]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("Class", "string",
					"The name of the IngressClass resource that should be used for additional configuration"),
				table.Column("Hosts", "string", "Hosts that incoming requests are matched against before the ingress rule"),
				table.Column("Address", "string", "Address is a list containing ingress points for the load-balancer"),
				table.Column("Ports", "string", "Ports of TLS configurations that open"),
				table.Age,
			},
			Cells: func(i *networkingv1.Ingress) []any {
				// The ports are not in the object: the API has only HTTP, and HTTPS with TLS.
				class, ports := ptr.Deref(i.Spec.IngressClassName, table.None), "80"
				if len(i.Spec.TLS) > 0 {
					ports = "80, 443"
				}
				return []any{i.Name, class, hosts(i.Spec.Rules), addresses(&i.Status.LoadBalancer), ports,
					table.AgeOf(i.CreationTimestamp)}
			},
		}.Untyped(),
	}
}

// hosts returns the first hosts of the rules. "*" means that no rule has a host, so that they apply to all hosts.
func hosts(rules []networkingv1.IngressRule) string {
	var names []string
	for _, rule := range rules {
		if rule.Host != "" {
			names = append(names, rule.Host)
		}
	}
	if len(names) == 0 {
		return "*"
	}
	return table.FirstOf(names, 3, ",")
}

func addresses(status *networkingv1.IngressLoadBalancerStatus) string {
	var out []string
	for _, point := range status.Ingress {
		if address := cmp.Or(point.IP, point.Hostname); address != "" {
			out = append(out, address)
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}
