package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
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
func findService(ctx context.Context, c registry.Cluster, r registry.ConnectRequest) (*registry.Destination, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(r.Name)
	if !ok {
		return nil, kerrors.NewBadRequest("invalid service request " + strconv.Quote(r.Name))
	}
	port, err := servicePortName(ctx, c, r.Namespace, name, port)
	if err != nil {
		return nil, err
	}
	obj, err := c.Get(ctx, corev1.Resource("endpoints"), r.Namespace, name)
	if err != nil {
		return nil, err
	}
	endpoints := obj.(*corev1.Endpoints) //nolint:staticcheck // what kube-apiserver reads
	if len(endpoints.Subsets) == 0 {
		return nil, kerrors.NewServiceUnavailable("no endpoints available for service " + strconv.Quote(name))
	}
	host, err := readyEndpoint(ctx, c, r.Namespace, endpoints.Subsets, port)
	switch {
	case err != nil:
		return nil, err
	case host == "":
		return nil, kerrors.NewServiceUnavailable("no endpoints available for service " + strconv.Quote(r.Name))
	}
	return forwardTo(scheme, host, r.Options.(*corev1.ServiceProxyOptions).Path, c.Direct(), nil), nil
}

// servicePortName returns the name of a port of a Service that is given by its number. Other names are returned as they
// are.
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

// readyEndpoint returns a random ready address with a port of that name, "" if there is none. Only addresses of pods in
// the same namespace count: Endpoints may be written by users, who must not make the server connect to anything else.
func readyEndpoint(
	ctx context.Context, c registry.Cluster, namespace string,
	subsets []corev1.EndpointSubset, port string, //nolint:staticcheck // what kube-apiserver reads
) (string, error) {
	first := rand.IntN(len(subsets))
	for i := range subsets {
		subset := &subsets[(first+i)%len(subsets)]
		if len(subset.Addresses) == 0 {
			continue
		}
		for _, p := range subset.Ports {
			if p.Name != port {
				continue
			}
			firstAddress := rand.IntN(len(subset.Addresses))
			for j := range subset.Addresses {
				address := &subset.Addresses[(firstAddress+j)%len(subset.Addresses)]
				ok, err := isPodAddress(ctx, c, namespace, address)
				if err != nil {
					return "", err
				}
				if ok {
					return net.JoinHostPort(address.IP, strconv.Itoa(int(p.Port))), nil
				}
			}
		}
	}
	return "", nil
}

// isPodAddress reports whether an address belongs to the pod that it refers to, in the namespace.
func isPodAddress(
	ctx context.Context, c registry.Cluster, namespace string, address *corev1.EndpointAddress,
) (bool, error) {
	if address.TargetRef == nil || address.TargetRef.Namespace != namespace || !mayConnectTo(address.IP) {
		return false, nil
	}
	obj, err := c.Get(ctx, corev1.Resource("pods"), namespace, address.TargetRef.Name)
	if kerrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.Contains(podIPs(&obj.(*corev1.Pod).Status), address.IP), nil
}
