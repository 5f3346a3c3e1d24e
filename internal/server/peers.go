package server

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/directory"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/gateway/aggregator"
	"github.com/keelson-dev/keelson/internal/gateway/peers"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/server/egress"
	"github.com/keelson-dev/keelson/internal/server/listener"
	"github.com/keelson-dev/keelson/internal/server/replicas"
	"github.com/keelson-dev/keelson/internal/storage"
)

// validatePeers returns the errors in the configuration of peers. enabled reports whether the feature gate is on.
func validatePeers(c *config.Peers, enabled bool) error {
	var errs []error
	for _, field := range []struct{ name, value string }{
		{"CAFile", c.CAFile}, {"AdvertiseIP", c.AdvertiseIP}, {"AdvertisePort", c.AdvertisePort},
	} {
		if field.value != "" && !enabled {
			errs = append(errs, config.Errorf("{Network.Peers.%s} requires %s feature to be turned on",
				field.name, features.UnknownVersionInteroperabilityProxy))
		}
	}
	if c.AdvertisePort != "" {
		if port, err := strconv.Atoi(c.AdvertisePort); err != nil || port < 1 || port > 65535 {
			errs = append(errs, config.Errorf("{Network.Peers.AdvertisePort} must be a port, not %q", c.AdvertisePort))
		}
	}
	return errors.Join(errs...)
}

// hasPeers reports whether the feature gate is on and other servers may use the main store.
func (s *starting) hasPeers() bool {
	return !s.config.onlyReads() && s.gates.Enabled(features.UnknownVersionInteroperabilityProxy) && !storage.IsExclusive(s.stores.Main)
}

// peerAddress returns the address for peers, as host:port. It is "" if the feature gate is off or there is no
// socket.
func (s *starting) peerAddress() string {
	if !s.gates.Enabled(features.UnknownVersionInteroperabilityProxy) || s.config.Serving.InProcess {
		return ""
	}
	host, port := peerHost(&s.config.Network.Peers, s.listener)
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// peerHost returns the host and port at which peers reach this server.
func peerHost(c *config.Peers, l *listener.Listener) (host string, port int) {
	if c.AdvertiseIP != "" && c.AdvertisePort != "" {
		port, _ = strconv.Atoi(c.AdvertisePort) // it was validated
		return c.AdvertiseIP, port
	}
	return l.Advertised.String(), l.Port()
}

// newPeerRecord returns the record by which peers find the address of this server, nil if there can be no peers.
func (s *starting) newPeerRecord() (*peers.Record, error) {
	if !s.hasPeers() {
		return nil, nil
	}
	name, err := hostname(&s.config.Network.ControlPlane)
	if err != nil {
		return nil, err
	}
	if c := &s.config.Network.Peers; (c.AdvertiseIP == "") != (c.AdvertisePort == "") {
		s.log.Warn("--peer-advertise-ip and --peer-advertise-port have no effect without each other")
	}
	host, port := peerHost(&s.config.Network.Peers, s.listener)
	return &peers.Record{
		Store: s.stores.Main, Server: bootstrap.ServerName(name), Host: host, Port: port, Log: s.log,
	}, nil
}

// compareReplicas creates this server's record for peers, and compares it with the records of the other servers.
func (s *starting) compareReplicas(ctx context.Context) (err error) {
	if s.peerRecord, err = s.newPeerRecord(); err != nil || s.peerRecord == nil {
		return err
	}
	return replicas.Compare(ctx, s.authentication, s.peerRecord, s.log)
}

// hostname returns the host name of this machine.
func hostname(c *config.ControlPlane) (string, error) {
	if name := c.Hostname; name != "" {
		return name, nil
	}
	return os.Hostname()
}

// newPeers returns the Peers that forward requests to other servers. It returns nil if no requests are to be
// forwarded.
func (s *starting) newPeers(ctx context.Context) (*peers.Peers, error) {
	c := s.config
	if !s.hasPeers() || c.Network.Peers.CAFile == "" {
		if c.Network.Peers.CAFile != "" {
			s.log.Warn("--peer-ca-file has no effect: no other server can use the store")
		}
		return nil, nil
	}
	if c.Network.Aggregation.ProxyClientCertFile == "" {
		return nil, errors.New("error building peer proxy handler, proxy-cert-file not specified")
	}
	name, err := hostname(&c.Network.ControlPlane)
	if err != nil {
		return nil, err
	}
	declared := &declaredVersions{resources: s.api.resources, changes: s.api.resources.Watch(), aggregator: s.api.aggregator}
	p, err := peers.New(ctx, peers.Options{
		Server: bootstrap.ServerName(name), Store: s.stores.Main, Declared: declared.get,
		Leases:      s.registry.Resource(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}),
		Certificate: s.api.proxyCertificate, Dial: proxy.Dial(s.egress.Dialer(egress.ControlPlane)),
		InFlight: int64(c.Requests.MaxInFlight), Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	if err := c.files.Authorities("--peer-ca-file", c.Network.Peers.CAFile, p.SetRoots); err != nil {
		return nil, config.Errorf("cannot use {Network.Peers.CAFile}: %w", err)
	}
	s.metrics.Register(p.Metrics())
	s.api.discovery.SetPeers(p)
	return p, nil
}

// declaredVersions finds the versions that definitions of custom resources and APIServices with a Service declare.
type declaredVersions struct {
	resources  *directory.Directory
	changes    *directory.Watcher
	aggregator *aggregator.Aggregator
	began      bool
	seen       int64 // the last result of aggregator.Changes
}

// get returns the versions and true if they may have changed since the last call, and otherwise false.
func (d *declaredVersions) get() (map[schema.GroupVersion]bool, bool) {
	changed, seen := d.changes.Take(), d.aggregator.Changes()
	if d.began && len(changed) == 0 && seen == d.seen {
		return nil, false
	}
	d.began, d.seen = true, seen
	versions := map[schema.GroupVersion]bool{}
	for _, gv := range d.resources.GroupVersions() {
		for _, r := range d.resources.Resources(gv) {
			if r.Source == directory.Custom {
				versions[gv] = true
				break
			}
		}
	}
	for _, r := range d.aggregator.Registrations() {
		if r.Remote != nil {
			versions[r.GroupVersion] = true
		}
	}
	return versions, true
}
