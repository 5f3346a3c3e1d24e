package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/controller/leader"
	"github.com/keelson-dev/keelson/internal/gateway/peers"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/authentication"
	"github.com/keelson-dev/keelson/internal/storage"
)

// leaveTime limits the time in which a stopping server removes itself from the endpoints.
const leaveTime = 2 * time.Second

// controlPlane maintains the objects that describe the server. It is nil in a server that follows another one.
type controlPlane struct {
	keeper *bootstrap.Keeper
	record *peers.Record  // the addresses for peers; nil if there can be no peers
	leader *leader.Leader // nil if no other server uses the store
}

// controlPlaneOptions are the dependencies of controlPlane.
type controlPlaneOptions struct {
	config   *config.ControlPlane
	services serviceRanges
	address  net.IP // the address for clients on other machines
	port     int    // that the server listens on
	record   *peers.Record
	// peerAddress is the address for peers, even if there are none yet; "" if the feature gate of peers is off.
	peerAddress string
	// restored is true if the server was started from a snapshot.
	restored bool
	// defaultsExist is true if the objects of bootstrap.Defaults were just created.
	defaultsExist bool
	store         storage.Store
	registry      *registry.Registry
	client        *client.Client
	now           func() time.Time
	// trust returns the data with which extension API servers verify clients.
	trust func() bootstrap.AuthenticationTrust
	log   *slog.Logger
}

// newControlPlane creates the objects that every server starts with, except roles. Later, the Run method of its
// keeper maintains them.
func newControlPlane(ctx context.Context, o controlPlaneOptions) (*controlPlane, error) {
	name, err := hostname(o.config)
	if err != nil {
		return nil, err
	}
	p := &controlPlane{record: o.record, keeper: &bootstrap.Keeper{
		Registry: o.registry, Client: o.client, Log: o.log, Now: o.now,
		Services: o.services, NodePort: o.config.ServiceNodePort,
		Port: o.port, Hostname: name,
		PeerAddress: o.peerAddress, HasPeers: o.record != nil,
		Endpoints: o.reconciler(), Trust: o.trust,
	}}
	if !storage.IsExclusive(o.store) {
		p.leader = leader.New(o.client, name, o.log)
	}
	if o.restored {
		return p, nil // the snapshot has all objects
	}
	return p, p.keeper.Start(ctx, o.defaultsExist)
}

// reconciler returns the reconciler of the endpoints of the Service kubernetes. It returns nil for a loopback
// address, which other machines cannot use.
func (o *controlPlaneOptions) reconciler() bootstrap.Reconciler {
	switch {
	case o.config.EndpointReconciler == config.ReconcilerNone:
		return nil
	case o.address.IsLoopback():
		o.log.Debug("the service kubernetes has no endpoints: the server listens on this machine alone", "address", o.address)
		return nil
	case storage.IsExclusive(o.store):
		return bootstrap.SingleServer{Address: o.address.String()}
	}
	return &bootstrap.EtcdLeases{Store: o.store, Address: o.address.String()}
}

// trust returns the data with which extension API servers verify clients.
func trust(a *authentication.Authentication) bootstrap.AuthenticationTrust {
	t := bootstrap.AuthenticationTrust{ClientCA: a.Authorities.Clients.PEM()}
	if a.Authorities.Proxies != nil {
		c := &a.RequestHeader
		t.ProxyCA = a.Authorities.Proxies.PEM()
		t.UsernameHeaders, t.UIDHeaders = c.UsernameHeaders, c.UIDHeaders
		t.GroupHeaders, t.ExtraHeaderPrefixes, t.AllowedNames = c.GroupHeaders, c.ExtraHeaderPrefixes, c.AllowedNames
	}
	return t
}

// remark says which server leads. p may be nil.
func (p *controlPlane) remark() string {
	if p == nil {
		return ""
	}
	return p.leader.Remark()
}

// leave removes the server from the endpoints of the Service kubernetes, and its record from those that peers
// read. p may be nil.
func (p *controlPlane) leave(ctx context.Context) error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	err := p.keeper.Leave(ctx)
	if p.record != nil {
		err = errors.Join(err, p.record.Leave(ctx))
	}
	return err
}

// updateDangling writes the conditions of flow schemas whose priority level is missing or is there again. p may be nil.
func (p *controlPlane) updateDangling(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.keeper.UpdateDangling(ctx)
}
