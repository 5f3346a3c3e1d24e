// Package members is the part of a server in a cluster of servers that keep their data together (Storage.Members). It lets a server join
// with a token, gives joining servers the keys that all have, and keeps the membership in order.
//
// members.go has the Cluster, which starts the member of this process; join.go the side of a server that joins, and admit.go that of a
// member which admits it; token.go the tokens, settings.go what members must have in common, peers.go what members ask each other, api.go
// what administrators ask, past.go how the past of the data comes to a new member, reset.go how one member goes on alone, and upkeep.go the
// work in the background.
package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

// DefaultPort is the port at which members reach each other.
const DefaultPort = "2380"

// Options are the dependencies of a Cluster.
type Options struct {
	Config *config.Config
	// Flags are the values of all flags by name, which are compared with those of other members.
	Flags map[string]string
	// Keys returns the files that a joining server gets, by their path in the data directory (KeyFiles).
	Keys func(context.Context) (map[string][]byte, error)
	// Roots returns the certificates, as PEM, with which clients verify the server.
	Roots func() []byte
	// Fail is called when the member has ended and the server must be stopped.
	Fail func(error)
	Log  *slog.Logger
}

// Cluster is the part of this server in the cluster.
type Cluster struct {
	Options
	dir    string // of the member
	place  Place
	peers  []string // addresses of the members that a joining server asks
	client *http.Client
	member atomic.Pointer[member.Member] // nil before Start
	past   atomic.Pointer[Exporter]      // nil before SetPast
	// shrinking: the database of this member is written anew, or shall be: Run receives from shrink then.
	shrinking atomic.Bool
	shrink    chan struct{}
}

// Place is where this server is reached.
type Place struct {
	IP  net.IP // from other machines
	URL string // of the API, for clients on other machines
}

// New returns a Cluster. It does nothing before Join.
func New(o Options) *Cluster {
	return &Cluster{Options: o, dir: datadir.Member(o.Config.Storage.DataDir), shrink: make(chan struct{}, 1)}
}

// errSingle is the error of a server that shall become a member and has data of its own.
var errSingle = config.Errorf("{Storage.DataDir} has the data of a single server, which would not be used; name another directory, " +
	"or remove {Storage.Members.Init} or {Storage.Members.Join}")

// Check returns an error if the data directory must not be used. It writes nothing.
func (c *Cluster) Check() error {
	m := &c.Config.Storage.Members
	switch _, err := os.Stat(datadir.StoreDir(c.Config.Storage.DataDir)); {
	case err == nil:
		return errSingle
	case !errors.Is(err, os.ErrNotExist):
		return err
	case !member.HasData(c.dir) && m.Reset:
		return config.Errorf("{Storage.DataDir} has no member of a cluster that {Storage.Members.Reset} could leave alone")
	case !member.HasData(c.dir) && !m.Init && m.Join == "":
		return config.Errorf("{Storage.DataDir} has no member of a cluster; use {Storage.Members.Init} to make a cluster, or " +
			"{Storage.Members.Join} to join one")
	}
	return nil
}

// Join gets what this server needs from the cluster, if it shall join one. The caller has locked the data directory. A server that has
// been a member before, and was not removed, needs nothing.
func (c *Cluster) Join(ctx context.Context, at Place) error {
	c.place = at
	if err := c.removeUnfinished(); err != nil {
		return err
	}
	if c.Config.Storage.Members.Join == "" || member.HasData(c.dir) {
		return nil
	}
	return c.fetch(ctx)
}

// Name returns the name of the member.
func (c *Cluster) Name() string {
	if name := c.Config.Storage.Members.Name; name != "" {
		return name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "member"
	}
	if _, port, err := net.SplitHostPort(c.address()); err == nil && port != DefaultPort {
		host += "-" + port
	}
	return host
}

// address returns where other members reach this one: a host and a port.
func (c *Cluster) address() string {
	if a := c.Config.Storage.Members.Address; a != "" {
		return a
	}
	return net.JoinHostPort(c.place.IP.String(), DefaultPort)
}

// peerURL returns the URL of address.
func (c *Cluster) peerURL() string { return (&url.URL{Scheme: "https", Host: c.address()}).String() }

// Start starts the member of this process, and returns its clients. It waits until a majority of the members can be reached. The caller
// calls Close.
func (c *Cluster) Start(ctx context.Context) (*etcd.Own, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	if err := c.reset(ctx, o); err != nil {
		return nil, err
	}
	m, err := c.start(ctx, o)
	if errors.Is(err, member.ErrRemoved) && c.Config.Storage.Members.Join != "" {
		c.Log.Warn("this server was removed from the cluster; it joins it again", "directory", c.dir)
		if err := errors.Join(member.RemoveData(c.dir), c.fetch(ctx)); err != nil {
			return nil, err
		}
		m, err = c.start(ctx, o)
	}
	if errors.Is(err, member.ErrRemoved) {
		return nil, config.Errorf("%w; to add the server again, start it with {Storage.Members.Join} and {Storage.Members.Token}", err)
	}
	if err != nil {
		return nil, err
	}
	c.member.Store(m)
	return m.Clients(), nil
}

// start starts the member, after it was added to the cluster if that is necessary.
func (c *Cluster) start(ctx context.Context, o member.Options) (*member.Member, error) {
	switch {
	case member.HasData(c.dir):
		return member.Start(ctx, o)
	case c.Config.Storage.Members.Join != "":
		return c.join(ctx, o)
	}
	o.Cluster = map[string]string{o.Name: o.PeerURL}
	return member.Start(ctx, o)
}

// options returns the options of the member of this process.
func (c *Cluster) options() (o member.Options, err error) {
	files, err := c.renew()
	if err != nil {
		return o, fmt.Errorf("cannot make the certificate for other members: %w", err)
	}
	if c.client, err = newClient(files); err != nil {
		return o, err
	}
	_, port, err := net.SplitHostPort(c.address())
	if err != nil {
		return o, err
	}
	if err := os.MkdirAll(c.dir, datadir.PrivateDir); err != nil {
		return o, err
	}
	return member.Options{
		Dir: c.dir, Name: c.Name(), PeerURL: c.peerURL(), ClientURL: c.place.URL,
		Listen:   net.JoinHostPort(c.Config.Serving.Address, port),
		CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA,
		Handler: c.peerHandler(), OnFailure: c.failed, Log: c.Log,
	}, nil
}

// renew makes the certificate for other members, if it is missing or expires soon.
func (c *Cluster) renew() (certs.MemberFiles, error) {
	host, _, err := net.SplitHostPort(c.address())
	if err != nil {
		return certs.MemberFiles{}, err
	}
	o := certs.Options{Dir: datadir.Certificates(c.Config.Storage.DataDir), Names: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if ip := net.ParseIP(host); ip != nil {
		o.IPs = append(o.IPs, ip)
	} else {
		o.Names = append(o.Names, host)
	}
	return certs.Member(o)
}

func (c *Cluster) failed(err error) {
	if errors.Is(err, member.ErrRemoved) {
		err = fmt.Errorf("%w, so it ends; to add it again, start it with --join and --token", err)
	}
	c.Fail(err)
}

// Close ends the member. c may be nil.
func (c *Cluster) Close() error {
	if c == nil {
		return nil
	}
	if m := c.member.Load(); m != nil {
		return m.Close()
	}
	return nil
}

// removeUnfinished removes the data of a member that has not become one with a vote, because the process ended before.
func (c *Cluster) removeUnfinished() error {
	if _, err := os.Stat(c.unfinished()); err != nil {
		return nil
	}
	return errors.Join(member.RemoveData(c.dir), os.Remove(c.unfinished()))
}

// unfinished is a file that exists while the server joins the cluster.
func (c *Cluster) unfinished() string { return filepath.Join(c.dir, "joining") }
