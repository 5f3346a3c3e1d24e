package server

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/controller/serviceallocator"
	"github.com/keelson-dev/keelson/internal/controller/servicerepair"
	"github.com/keelson-dev/keelson/internal/controller/serviceresolver"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/server/egress"
)

// errSplitServices is the error of overrides that store Services in another cluster than their addresses and
// endpoints. One transaction writes all of these.
var errSplitServices = config.Errorf("{Storage.Etcd.Overrides}: services, endpoints and networking.k8s.io/ipaddresses " +
	"must be on the same servers")

// serviceRanges are the ranges of Service addresses, at most one for each IP family. The Service kubernetes is in
// the first.
type serviceRanges []netip.Prefix

// kubernetes returns the address of the Service kubernetes.
func (r serviceRanges) kubernetes() net.IP { return r[0].Addr().Next().AsSlice() }

// resolveServices returns the function that finds the addresses of Services that the server calls.
func resolveServices(o *apiOptions) serviceresolver.Func {
	objects := serviceresolver.Stored(o.registry)
	resolve := serviceresolver.ByClusterIP(objects)
	if o.config.Network.Aggregation.ByEndpoints {
		resolve = serviceresolver.ByEndpoints(objects, rand.IntN)
	}
	return serviceresolver.Local(o.addresses.local, resolve)
}

// dialServices returns the dialer for the addresses from resolveServices. It reaches the server itself without a
// proxy. The result is nil, which means the dialer of package net, if there is no proxy.
func dialServices(o *apiOptions) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := o.egress.Dialer(egress.Cluster)
	if dial == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == o.addresses.local {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		return dial(ctx, network, address)
	}
}

// allocateServices sets up the allocation of addresses and ports for Services. It returns the controller that
// repairs allocations that do not match the Services.
func allocateServices(o *apiOptions) (*servicerepair.Controller, error) {
	reg := o.registry
	resource := reg.Resource(corev1.Resource("services"))
	for _, gr := range []schema.GroupResource{corev1.Resource("endpoints"), networkingv1.Resource("ipaddresses")} {
		if reg.Resource(gr).Store() != resource.Store() {
			return nil, errSplitServices
		}
	}
	ports, err := serviceallocator.ParsePortRange(o.config.Network.ServiceNodePortRange)
	if err != nil {
		return nil, err
	}
	a := &serviceallocator.Services{
		Registry: reg, Store: resource.Store(), NodePorts: ports, Now: o.config.Testing.Clock.Now, Random: rand.Uint64N,
		Addresses: core.NewAddressRules(o.gates),
	}
	a.Metrics = serviceallocator.NewMetrics(o.metrics, a.Usage)
	for _, p := range o.services {
		family := corev1.IPv4Protocol
		if p.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		a.Families = append(a.Families, family)
	}
	resource.Writer.SetAllocator(a)
	return &servicerepair.Controller{Services: a, Log: o.log}, nil
}
