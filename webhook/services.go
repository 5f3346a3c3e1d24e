package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ResolveByClusterIP finds Services at their cluster IP, as kube-apiserver does
// without aggregator routing. find returns a Service, nil if there is none of that
// name.
func ResolveByClusterIP(find func(ctx context.Context, namespace, name string) (*corev1.Service, error)) Resolver {
	return func(ctx context.Context, namespace, name string, port int32) (string, error) {
		service, err := find(ctx, namespace, name)
		if err != nil {
			return "", err
		}
		if service == nil {
			return "", apierrors.NewNotFound(corev1.Resource("service"), name)
		}
		host, err := hostOf(service, port)
		if err != nil {
			return "", err
		}
		return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
	}
}

func hostOf(service *corev1.Service, port int32) (string, error) {
	spec := &service.Spec
	switch spec.Type {
	case corev1.ServiceTypeExternalName:
		return spec.ExternalName, nil
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		return "", fmt.Errorf("unsupported service type %q", spec.Type)
	}
	if spec.ClusterIP == corev1.ClusterIPNone && spec.Type == corev1.ServiceTypeClusterIP {
		return "", errors.New(`cannot route to service with ClusterIP "None"`)
	}
	for i := range spec.Ports {
		if spec.Ports[i].Port == port {
			return spec.ClusterIP, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, service.Name))
}
