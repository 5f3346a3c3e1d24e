package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/keelson-dev/keelson/allocate"
	"github.com/keelson-dev/keelson/controller/serviceclaims"
	"github.com/keelson-dev/keelson/registry"
)

// errSplitServices refuses a placement in which a Service cannot be written together
// with what it claims.
var errSplitServices = errors.New("--etcd-servers-overrides: services, endpoints and networking.k8s.io/ipaddresses must be on the same servers")

// allocateServices makes Services get their addresses and ports.
func (s *Server) allocateServices(ctx context.Context, reg *registry.Registry) error {
	resource := reg.Resource(corev1.Resource("services"))
	for _, other := range []*registry.Resource{reg.Resource(corev1.Resource("endpoints")), reg.Resource(networkingv1.Resource("ipaddresses"))} {
		if other.Store() != resource.Store() {
			return errSplitServices
		}
	}
	ports, err := allocate.ParsePortRange(s.config.ServiceNodePortRange)
	if err != nil {
		return err
	}
	a := &allocate.Services{Registry: reg, Store: resource.Store(), NodePorts: ports, Now: time.Now, Random: rand.Uint64N}
	for _, p := range s.services {
		family := corev1.IPv4Protocol
		if p.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		a.Families = append(a.Families, family)
	}
	if err := a.PreparePorts(ctx); err != nil {
		return err
	}
	resource.SetAllocator(a)
	s.claims = &serviceclaims.Controller{Services: a, Log: s.log}
	return nil
}
