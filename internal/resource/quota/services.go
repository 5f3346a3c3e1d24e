package quota

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// services measures the load balancers and node ports of Services.
type services struct{ unscoped }

func (services) tracks(_ context.Context, name corev1.ResourceName) (bool, error) {
	return name == corev1.ResourceServicesLoadBalancers || name == corev1.ResourceServicesNodePorts, nil
}

// use counts one node port for each port of a Service of the type NodePort or LoadBalancer, whether it is
// allocated already or not. A load balancer that does without node ports counts only those that the client has
// chosen. Both names are always set, also to 0.
func (services) use(_ context.Context, obj registry.Object, used corev1.ResourceList) error {
	s := obj.(*corev1.Service)
	var balancers, ports int
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(s.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		balancers, ports = 1, len(s.Spec.Ports)
		if allocates := s.Spec.AllocateLoadBalancerNodePorts; allocates != nil && !*allocates {
			ports = 0
			for i := range s.Spec.Ports {
				if s.Spec.Ports[i].NodePort != 0 {
					ports++
				}
			}
		}
	}
	used[corev1.ResourceServicesLoadBalancers] = quantity(int64(balancers))
	used[corev1.ResourceServicesNodePorts] = quantity(int64(ports))
	return nil
}
