package networking

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// kindsOf returns the kinds of a minor, by the names of their resources.
func kindsOf(t *testing.T, minor int) map[string]*registry.Kind {
	gates, err := features.Parse(nil, release.Of(minor))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*registry.Kind{}
	for _, k := range Kinds(gates) {
		kinds[k.Names.Resource] = k
	}
	return kinds
}

func ingressTo(services ...string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{}
	for _, name := range services {
		b := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name,
			Port: networkingv1.ServiceBackendPort{Number: 80}}}
		kind := networkingv1.PathTypePrefix
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &kind, Backend: b}}}}})
	}
	return i
}

// TestServiceNames has names of Services in Ingresses, which begin with a letter before 1.36.
func TestServiceNames(t *testing.T) {
	const message = `[spec.rules[0].http.paths[0].backend.service.name: Invalid value: "1s": a DNS-1035 label must consist of ` +
		`lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character ` +
		`(e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]`
	for _, c := range []struct {
		minor   int
		is, was *networkingv1.Ingress
		want    string
	}{
		{35, ingressTo("1s"), nil, message}, {36, ingressTo("1s"), nil, "[]"}, {35, ingressTo("s"), nil, "[]"},
		{35, ingressTo("1s"), ingressTo("s"), message}, {35, ingressTo("1s"), ingressTo("s", "2s"), "[]"},
	} {
		s := kindsOf(t, c.minor)["ingresses"].Strategy
		var errs field.ErrorList
		if c.was == nil {
			errs = s.ValidateCreate(t.Context(), c.is, nil)
		} else {
			errs = s.ValidateUpdate(t.Context(), c.is, c.was)
		}
		if got := text(errs); got != c.want {
			t.Errorf("1.%d: %s", c.minor, got)
		}
	}
}

// TestAmbiguousAddresses validates addresses with a leading zero, which StrictIPCIDRValidation refuses since 1.36.
func TestAmbiguousAddresses(t *testing.T) {
	policy := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{
		To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "010.0.0.0/8", Except: []string{"010.1.0.0/16"}}}}}}}}
	ingress := &networkingv1.Ingress{}
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "010.1.1.1"}}
	for minor, want := range map[int]int{35: 0, 36: 3} {
		kinds := kindsOf(t, minor)
		errs := append(kinds["networkpolicies"].Strategy.ValidateCreate(t.Context(), policy, nil),
			kinds["ingresses"].Strategy.ValidateStatusUpdate(t.Context(), ingress, &networkingv1.Ingress{})...)
		if len(errs) != want {
			t.Errorf("1.%d: %s", minor, text(errs))
		}
	}
}

// TestServiceCIDRStatusFieldWiping: before 1.36, a write of a ServiceCIDR could set its status.
func TestServiceCIDRStatusFieldWiping(t *testing.T) {
	for minor, want := range map[int]bool{35: false, 36: true} {
		if got := kindsOf(t, minor)["servicecidrs"].Strategy.Status != nil; got != want {
			t.Errorf("1.%d: the status is reset: %v", minor, got)
		}
	}
}
