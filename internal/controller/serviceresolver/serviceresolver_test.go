package serviceresolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// objects has one Service at most.
type objects struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	err     error
}

func (o *objects) Service(context.Context, string, string) (*corev1.Service, error) {
	return o.service, o.err
}

func (o *objects) EndpointSlices(context.Context, string, string) ([]*discoveryv1.EndpointSlice, error) {
	return o.slices, nil
}

func service(kind corev1.ServiceType, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Spec: corev1.ServiceSpec{
		Type: kind, ClusterIP: ip, ExternalName: "hook.example.com",
		Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
	}}
}

// resolve returns the address, or the text of the error.
func resolve(t *testing.T, f Func, port int32) string {
	got, err := f(t.Context(), "ns", "hook", port)
	if err != nil {
		return err.Error()
	}
	return got
}

func TestByClusterIP(t *testing.T) {
	for name, test := range map[string]struct {
		service *corev1.Service
		err     error
		port    int32
		want    string
	}{
		"cluster IP":    {service(corev1.ServiceTypeClusterIP, "10.0.0.1"), nil, 443, "10.0.0.1:443"},
		"IPv6":          {service(corev1.ServiceTypeLoadBalancer, "fd00::1"), nil, 80, "[fd00::1]:80"},
		"external name": {service(corev1.ServiceTypeExternalName, ""), nil, 8443, "hook.example.com:8443"},
		"no port": {
			service(corev1.ServiceTypeNodePort, "10.0.0.1"), nil, 8443, `no service port 8443 found for service "hook"`,
		},
		"headless": {
			service(corev1.ServiceTypeClusterIP, "None"), nil, 443, `cannot route to service with ClusterIP "None"`,
		},
		"other type": {service("Other", "10.0.0.1"), nil, 443, `unsupported service type "Other"`},
		"none":       {nil, nil, 443, `service "hook" not found`},
		"error":      {nil, errors.New("oh"), 443, "oh"},
	} {
		if got := resolve(t, ByClusterIP(&objects{service: test.service, err: test.err}), test.port); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// slice returns a slice with one endpoint for each entry of ready, whose addresses are 10.1.first.0, 10.1.first.1, ...
func slice(first int, port string, number *int32, ready ...*bool) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &port, Port: number}}}
	for i, r := range ready {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.1.%d.%d", first, i)}, Conditions: discoveryv1.EndpointConditions{Ready: r},
		})
	}
	return s
}

// TestByEndpoints has the answers that kube-apiserver 1.36 gave with --enable-aggregator-routing.
func TestByEndpoints(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	number := ptr.To(int32(8443))
	const nothing = `no endpoints available for service "hook"`
	for name, test := range map[string]struct {
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		port    int32
		want    []string
	}{
		"none":          {nil, nil, 443, []string{`service "hook" not found`}},
		"external name": {service(corev1.ServiceTypeExternalName, ""), nil, 8443, []string{`unsupported service type "ExternalName"`}},
		"no port": {
			service(corev1.ServiceTypeClusterIP, "10.0.0.1"), nil, 8443, []string{`no service port 8443 found for service "hook"`},
		},
		"no slices": {service(corev1.ServiceTypeClusterIP, "10.0.0.1"), nil, 443, []string{nothing}},
		"not ready": {
			service(corev1.ServiceTypeClusterIP, "10.0.0.1"), []*discoveryv1.EndpointSlice{slice(1, "https", number, no)}, 443,
			[]string{nothing},
		},
		"ready": {
			service(corev1.ServiceTypeClusterIP, "None"),
			[]*discoveryv1.EndpointSlice{slice(1, "https", number, no, yes, nil), slice(2, "https", number, yes)}, 443,
			[]string{"10.1.1.1:8443", "10.1.1.2:8443", "10.1.2.0:8443"},
		},
		"another port": {
			service(corev1.ServiceTypeNodePort, "10.0.0.1"), []*discoveryv1.EndpointSlice{slice(1, "http", number, yes)}, 443,
			[]string{nothing},
		},
		"port without a number": {
			service(corev1.ServiceTypeNodePort, "10.0.0.1"), []*discoveryv1.EndpointSlice{slice(1, "https", nil, yes)}, 443,
			[]string{nothing},
		},
	} {
		var got []string
		next := 0
		for i, n := 0, 1; i < n; i++ {
			f := ByEndpoints(&objects{service: test.service, slices: test.slices}, func(of int) int { n = of; return next })
			got = append(got, resolve(t, f, test.port))
			next++
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestLocal(t *testing.T) {
	f := Local("127.0.0.1:6443", func(context.Context, string, string, int32) (string, error) { return "elsewhere", nil })
	for _, test := range []struct {
		namespace, name string
		port            int32
		want            string
	}{
		{"default", "kubernetes", 443, "127.0.0.1:6443"}, {"default", "kubernetes", 444, "elsewhere"},
		{"other", "kubernetes", 443, "elsewhere"}, {"default", "other", 443, "elsewhere"},
	} {
		if got, err := f(t.Context(), test.namespace, test.name, test.port); got != test.want || err != nil {
			t.Errorf("%+v: %s, %v", test, got, err)
		}
	}
}
