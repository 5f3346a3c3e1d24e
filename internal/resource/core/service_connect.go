package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

func serviceProxy() registry.Subresource {
	return proxySubresource("ServiceProxyOptions",
		func(path string) runtime.Object { return &corev1.ServiceProxyOptions{Path: path} }, findService)
}

// findService finds an endpoint of a service. The port is the name of a port of the Service, or its number.
// The name may be NAME, NAME:PORT or SCHEME:NAME:PORT. Without a port, the Service must have one port without a
// name.
func findService(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(r.Name)
	if !ok {
		return nil, kerrors.NewBadRequest("invalid service request " + strconv.Quote(r.Name))
	}
	port, err := servicePortName(ctx, c, r.Namespace, name, port)
	if err != nil {
		return nil, err
	}
	host, err := readyEndpoint(ctx, c, r.Namespace, name, port)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return nil, kerrors.NewServiceUnavailable("no endpoints available for service " + strconv.Quote(name))
	}
	return forwardTo(scheme, host, r.Options.(*corev1.ServiceProxyOptions).Path, c.Direct(), nil), nil
}

// servicePortName returns the name of a port of a Service that is given by its number. Other names are returned as they
// are.
// The number is that of the Service, and not the target port in the pods. EndpointSlices have the target port,
// and only the name connects the two.
func servicePortName(ctx context.Context, c registry.Cluster, namespace, name, port string) (string, error) {
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return port, nil
	}
	obj, err := c.Get(ctx, corev1.Resource("services"), namespace, name)
	if err != nil {
		return "", err
	}
	for _, p := range obj.(*corev1.Service).Spec.Ports {
		if int64(p.Port) == number {
			return p.Name, nil
		}
	}
	return "", kerrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
}

// readyEndpoint returns the address of a random ready endpoint of a Service with a port of that name, "" if there is none.
// Only addresses of pods in the same namespace count: EndpointSlices may be written by users, who must not make the server
// connect to anything else.
func readyEndpoint(ctx context.Context, c registry.Cluster, namespace, service, port string) (string, error) {
	list, err := c.List(ctx, discoveryv1.Resource("endpointslices"), namespace)
	if err != nil {
		return "", err
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, obj := range list {
		slice := obj.(*discoveryv1.EndpointSlice)
		if slice.Labels[discoveryv1.LabelServiceName] != service || len(slice.Endpoints) == 0 {
			continue
		}
		for _, p := range slice.Ports {
			if p.Name == nil || *p.Name != port || p.Port == nil {
				continue
			}
			ip, err := readyAddress(ctx, c, namespace, slice.Endpoints)
			if err != nil {
				return "", err
			}
			if ip != "" {
				return net.JoinHostPort(ip, strconv.Itoa(int(*p.Port))), nil
			}
		}
	}
	return "", nil
}

// readyAddress returns the address of a random ready endpoint, "" if there is none.
func readyAddress(
	ctx context.Context, c registry.Cluster, namespace string, endpoints []discoveryv1.Endpoint,
) (string, error) {
	first := rand.IntN(len(endpoints))
	for i := range endpoints {
		e := &endpoints[(first+i)%len(endpoints)]
		// The API says that an endpoint without the condition counts as ready.
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		ok, err := isPodAddress(ctx, c, namespace, e)
		if err != nil {
			return "", err
		}
		if ok {
			return e.Addresses[0], nil
		}
	}
	return "", nil
}

// isPodAddress reports whether the first address of an endpoint, the only one that is used, belongs to the pod that it
// refers to, in the namespace.
func isPodAddress(ctx context.Context, c registry.Cluster, namespace string, e *discoveryv1.Endpoint) (bool, error) {
	if e.TargetRef == nil || e.TargetRef.Namespace != namespace || len(e.Addresses) == 0 || !mayConnectTo(e.Addresses[0]) {
		return false, nil
	}
	obj, err := c.Get(ctx, corev1.Resource("pods"), namespace, e.TargetRef.Name)
	if kerrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.Contains(podIPs(&obj.(*corev1.Pod).Status), e.Addresses[0]), nil
}
