package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/keelson-dev/keelson/controller/bootstrap"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/rest"
)

// Ways to find the servers behind the Service kubernetes.
const (
	ReconcilerLease       = "lease"
	ReconcilerMasterCount = "master-count"
	ReconcilerNone        = "none"
)

// farewell bounds how long a server that stops tries to leave the endpoints.
const farewell = 2 * time.Second

// ControlPlaneConfig is how the server presents itself to the cluster.
type ControlPlaneConfig struct {
	// AdvertiseAddress is the IP address at which others reach the server; empty is
	// BindAddress or, where that is unspecified, the host's.
	AdvertiseAddress string
	// EndpointReconciler says which servers are behind the Service kubernetes: those
	// with a lease in the store (ReconcilerLease), or nobody does (ReconcilerNone).
	// ReconcilerMasterCount is taken for ReconcilerLease.
	EndpointReconciler string
	// ServiceNodePort makes the Service kubernetes one of type NodePort; 0 does not.
	ServiceNodePort int
}

// validate returns what is wrong with the configuration by itself.
func (c *ControlPlaneConfig) validate() []error {
	var errs []error
	if c.AdvertiseAddress != "" && net.ParseIP(c.AdvertiseAddress) == nil {
		errs = append(errs, fmt.Errorf("--advertise-address must be an IP address, not %q", c.AdvertiseAddress))
	}
	switch c.EndpointReconciler {
	case ReconcilerLease, ReconcilerMasterCount, ReconcilerNone:
	default:
		errs = append(errs, fmt.Errorf("--endpoint-reconciler-type must be one of: [%s, %s, %s]", ReconcilerMasterCount, ReconcilerLease, ReconcilerNone))
	}
	if c.ServiceNodePort < 0 || c.ServiceNodePort > 65535 {
		errs = append(errs, fmt.Errorf("--kubernetes-service-node-port %v must be between 0 and 65535, inclusive. If 0, the Kubernetes master service will be of type ClusterIP", c.ServiceNodePort))
	}
	return errs
}

// controlPlane keeps the objects that describe the server.
type controlPlane struct {
	keeper *bootstrap.Keeper
	ready  chan struct{} // closed when they are there
}

// startControlPlane makes the objects that every server starts with, roles aside,
// and goes on keeping them.
func (s *Server) startControlPlane(ctx context.Context, reg *registry.Registry, verbs *rest.Handler) error {
	address, err := s.advertised()
	if err != nil {
		return err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	p := &controlPlane{ready: make(chan struct{}), keeper: &bootstrap.Keeper{
		Registry: reg, Writer: verbs, Log: s.log, Now: time.Now,
		Services: s.services, NodePort: s.config.ControlPlane.ServiceNodePort,
		Address: address, Port: s.listener.Addr().(*net.TCPAddr).Port, Hostname: hostname,
		Endpoints: s.reconciler(address), Trust: s.trust,
	}}
	s.controlPlane = p
	if err := p.keeper.Start(ctx); err != nil {
		return err
	}
	close(p.ready)
	return nil
}

// advertised returns the address at which others reach the server.
func (s *Server) advertised() (net.IP, error) {
	if a := s.config.ControlPlane.AdvertiseAddress; a != "" {
		return net.ParseIP(a), nil
	}
	bound := net.ParseIP(s.config.BindAddress)
	if !bound.IsUnspecified() {
		return bound, nil
	}
	ip, err := utilnet.ResolveBindAddress(bound)
	if err != nil {
		return nil, fmt.Errorf("unable to find suitable network address.error='%w'. Try to set the AdvertiseAddress directly or provide a valid BindAddress to fix this", err)
	}
	return ip, nil
}

// reconciler returns who knows the servers behind the Service kubernetes, nil where
// nobody does: an address that only this machine has is no use to others.
func (s *Server) reconciler(address net.IP) bootstrap.Reconciler {
	switch {
	case s.config.ControlPlane.EndpointReconciler == ReconcilerNone:
		return nil
	case address.IsLoopback():
		s.log.Debug("the service kubernetes has no endpoints: the server listens on this machine alone", "address", address)
		return nil
	case s.config.Storage == StorageEtcd:
		return &bootstrap.Leases{Store: s.store, Address: address.String()}
	}
	return bootstrap.Alone{Address: address.String()}
}

// trust returns what extension API servers verify clients with.
func (s *Server) trust() bootstrap.Trust {
	a := s.authentication
	t := bootstrap.Trust{ClientCA: a.clientCAs.PEM()}
	if a.proxyCAs != nil {
		c := &s.config.Authentication.RequestHeader
		t.ProxyCA = a.proxyCAs.PEM()
		t.UsernameHeaders, t.UIDHeaders = c.UsernameHeaders, c.UIDHeaders
		t.GroupHeaders, t.ExtraHeaderPrefixes, t.AllowedNames = c.GroupHeaders, c.ExtraHeadersPrefixes, c.AllowedNames
	}
	return t
}

// bootstrapped waits until the objects are there.
func (p *controlPlane) bootstrapped(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave takes the server out of the endpoints of the Service kubernetes.
func (s *Server) leave(ctx context.Context) error {
	if s.controlPlane == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	return s.controlPlane.keeper.Leave(ctx)
}
