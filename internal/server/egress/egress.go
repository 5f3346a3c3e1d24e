// Package egress opens the connections that the server itself makes: directly or through a proxy, according to an
// EgressSelectorConfiguration (KEP-1281), which selects by the network of the destination.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"

	"github.com/keelson-dev/keelson/internal/machinery/webhook"
)

// Network is a class of destinations.
type Network string

// The networks: other components of the control plane, Pods and Services of the cluster, and the etcd servers.
const (
	ControlPlane Network = "controlplane"
	Cluster      Network = "cluster"
	Etcd         Network = "etcd"
)

// dialTimeout limits the time to open a connection, including the connection to the proxy.
const dialTimeout = 30 * time.Second

// Selector selects how connections are opened. A nil Selector opens all connections directly.
type Selector struct {
	metrics *Metrics
	dialers atomic.Pointer[map[Network]webhook.DialFunc]
}

// New returns a Selector. Load is called before it is used.
func New(m *Metrics) *Selector { return &Selector{metrics: m} }

// Load reads a configuration file, and the files named in it, with read, which works as os.ReadFile. It does not
// connect to the proxies. A later call changes only connections that are opened afterwards; if it fails, it changes
// nothing. The first call decides whether connections to etcd use a proxy, so a later call must not add that network.
func (s *Selector) Load(file string, read func(path string) ([]byte, error)) error {
	content, err := read(file)
	if err != nil {
		return fmt.Errorf("failed to read egress selector config: %w", err)
	}
	c := &apiserver.EgressSelectorConfiguration{}
	if err := configKind.Decode(content, c, &c.TypeMeta); err != nil {
		return fmt.Errorf("failed to read egress selector config: %w", err)
	}
	if errs := validate(c); len(errs) > 0 {
		return fmt.Errorf("failed to validate egress selector configuration: %w", errs.ToAggregate())
	}
	dialers := map[Network]webhook.DialFunc{}
	for i := range c.EgressSelections {
		selection := &c.EgressSelections[i]
		name := Network(strings.ToLower(selection.Name))
		if dialers[name], err = dialer(&selection.Connection, read, s.metrics); err != nil {
			return fmt.Errorf("failed to create dialer for egressSelection %q: %w", name, err)
		}
	}
	if before := s.dialers.Load(); before != nil && dialers[Etcd] != nil && (*before)[Etcd] == nil {
		return errors.New("egressSelection \"etcd\" can only be added when the server starts")
	}
	s.dialers.Store(&dialers)
	return nil
}

// Has reports whether the configuration contains a network.
func (s *Selector) Has(n Network) bool { return s != nil && (*s.dialers.Load())[n] != nil }

// Dialer returns a function that opens connections to a network by the current configuration: directly if the network
// is not configured. It returns nil, which means direct connections, for a nil Selector.
func (s *Selector) Dialer(n Network) webhook.DialFunc {
	if s == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dial := (*s.dialers.Load())[n]
		if dial == nil {
			dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
		}
		return dial(ctx, network, address)
	}
}

// dialer returns the function that opens connections according to a valid configuration.
func dialer(
	c *apiserver.Connection, read func(string) ([]byte, error), m *Metrics,
) (webhook.DialFunc, error) {
	if c.ProxyProtocol == apiserver.ProtocolDirect {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext, nil
	}
	transport, protocol := "uds", "http-connect"
	var p proxy
	switch {
	case c.ProxyProtocol == apiserver.ProtocolGRPC:
		protocol = "grpc"
		p = konnectivityProxy{socket: c.Transport.UDS.UDSName}
	case c.Transport.UDS != nil:
		name := c.Transport.UDS.UDSName
		p = httpConnectProxy{name: name, dial: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", name)
		}}
	default:
		transport = "tcp"
		address, dial, err := dialTCP(c.Transport.TCP, read)
		if err != nil {
			return nil, err
		}
		p = httpConnectProxy{name: address, dial: dial}
	}
	return m.measuredDialer(p, protocol, transport), nil
}

// dialTCP returns the address of a proxy and the function that connects to it.
func dialTCP(
	t *apiserver.TCPTransport, read func(string) ([]byte, error),
) (string, func(context.Context) (net.Conn, error), error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "", nil, fmt.Errorf("invalid proxy server url %q: %w", t.URL, err)
	}
	if t.TLSConfig == nil {
		return u.Host, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		}, nil
	}
	config, err := tlsConfig(t.TLSConfig, read)
	if err != nil {
		return "", nil, err
	}
	return u.Host, func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", u.Host)
	}, nil
}

func tlsConfig(t *apiserver.TLSConfig, read func(string) ([]byte, error)) (*tls.Config, error) {
	cert, certErr := read(t.ClientCert)
	key, keyErr := read(t.ClientKey)
	err := errors.Join(certErr, keyErr)
	var certificate tls.Certificate
	if err == nil {
		certificate, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read key pair %s & %s, got %w", t.ClientCert, t.ClientKey, err)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ServerName: t.TLSServerName,
	}
	if t.CABundle == "" {
		return c, nil // the system's authorities
	}
	pem, err := read(t.CABundle)
	if err != nil {
		return nil, fmt.Errorf("failed to read cert file %s, got %w", t.CABundle, err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("failed to append CA cert to the cert pool")
	}
	return c, nil
}
