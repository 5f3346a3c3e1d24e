// Package serviceresolver finds the address at which the port of a Service is reached. The server uses it for
// everything that it calls by the name of a Service, such as admission and conversion webhooks.
//
// By default a Service is reached at its cluster IP, which needs kube-proxy or the like on the machine of the server.
// Without it the server has to connect to the endpoints of the Service itself (--enable-aggregator-routing).
package serviceresolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A Func returns the address ("host:port") of a port of a Service. It returns the same errors as kube-apiserver.
// It is called for each new connection, and concurrently.
type Func func(ctx context.Context, namespace, name string, port int32) (address string, err error)

// Objects reads Services and their EndpointSlices.
type Objects interface {
	// Service returns a Service, nil if it does not exist.
	Service(ctx context.Context, namespace, name string) (*corev1.Service, error)
	// EndpointSlices returns the EndpointSlices of a Service in the order of their names.
	EndpointSlices(ctx context.Context, namespace, service string) ([]*discoveryv1.EndpointSlice, error)
}

// ByClusterIP returns a Func that resolves a Service to its cluster IP, and a Service of type ExternalName to its
// external name.
func ByClusterIP(objects Objects) Func {
	return func(ctx context.Context, namespace, name string, port int32) (string, error) {
		service, err := find(ctx, objects, namespace, name)
		if err != nil {
			return "", err
		}
		switch {
		case service.Spec.Type == corev1.ServiceTypeExternalName:
			return join(service.Spec.ExternalName, port), nil
		case service.Spec.Type == corev1.ServiceTypeClusterIP && service.Spec.ClusterIP == corev1.ClusterIPNone:
			return "", errors.New(`cannot route to service with ClusterIP "None"`)
		}
		if _, err := portOf(service, port); err != nil {
			return "", err
		}
		return join(service.Spec.ClusterIP, port), nil
	}
}

// ByEndpoints returns a Func that resolves a Service to one of its ready endpoints. pick chooses the endpoint: it
// returns a number in [0,n).
func ByEndpoints(objects Objects, pick func(n int) int) Func {
	return func(ctx context.Context, namespace, name string, port int32) (string, error) {
		service, err := find(ctx, objects, namespace, name)
		if err != nil {
			return "", err
		}
		servicePort, err := portOf(service, port)
		if err != nil {
			return "", err
		}
		all, err := objects.EndpointSlices(ctx, namespace, name)
		if err != nil {
			return "", err
		}
		addresses := ready(all, servicePort.Name)
		if len(addresses) == 0 {
			return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
		}
		return addresses[pick(len(addresses))], nil
	}
}

// Local returns a Func that resolves port 443 of the Service default/kubernetes to the address of this server. For
// all others it calls next.
func Local(address string, next Func) Func {
	return func(ctx context.Context, namespace, name string, port int32) (string, error) {
		const https = 443
		if namespace == corev1.NamespaceDefault && name == "kubernetes" && port == https {
			return address, nil
		}
		return next(ctx, namespace, name, port)
	}
}

func join(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

func find(ctx context.Context, objects Objects, namespace, name string) (*corev1.Service, error) {
	service, err := objects.Service(ctx, namespace, name)
	if err == nil && service == nil {
		err = apierrors.NewNotFound(corev1.Resource("service"), name)
	}
	return service, err
}

// portOf returns a port of a Service. It fails for Services whose type has no ports, such as ExternalName.
func portOf(service *corev1.Service, port int32) (*corev1.ServicePort, error) {
	switch service.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		return nil, fmt.Errorf("unsupported service type %q", service.Spec.Type)
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return nil, apierrors.NewServiceUnavailable(
			fmt.Sprintf("no service port %d found for service %q", port, service.Name))
	}
	return &service.Spec.Ports[i], nil
}

// AnyReady reports whether any of the slices has a ready endpoint with a port of this name.
func AnyReady(all []*discoveryv1.EndpointSlice, port string) bool { return len(ready(all, port)) > 0 }

// ready returns the addresses of the ready endpoints that have a port of this name. An endpoint without a condition
// Ready is ready.
func ready(all []*discoveryv1.EndpointSlice, port string) []string {
	var addresses []string
	for _, slice := range all {
		number := numberOf(slice, port)
		if number == nil {
			continue
		}
		for i := range slice.Endpoints {
			if r := slice.Endpoints[i].Conditions.Ready; r != nil && !*r {
				continue
			}
			if hosts := slice.Endpoints[i].Addresses; len(hosts) > 0 { // the others have no meaning
				addresses = append(addresses, join(hosts[0], *number))
			}
		}
	}
	return addresses
}

// numberOf returns the number of the port of this name, nil if the endpoints have none.
func numberOf(slice *discoveryv1.EndpointSlice, name string) *int32 {
	for i := range slice.Ports {
		if p := &slice.Ports[i]; p.Name != nil && *p.Name == name || p.Name == nil && name == "" {
			return p.Port
		}
	}
	return nil
}
