package webhook

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestResolveByClusterIP(t *testing.T) {
	service := func(kind corev1.ServiceType, ip string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Spec: corev1.ServiceSpec{
			Type: kind, ClusterIP: ip, ExternalName: "hook.example.com", Ports: []corev1.ServicePort{{Port: 80}, {Port: 443}},
		}}
	}
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
		resolve := ResolveByClusterIP(
			func(context.Context, string, string) (*corev1.Service, error) { return test.service, test.err },
		)
		got, err := resolve(t.Context(), "ns", "hook", test.port)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if _, err := ResolveByName(t.Context(), "", "hook", 443); err == nil {
		t.Error("no error")
	}
}
