// Package egress opens the connections that the server itself makes: directly or through a proxy, according to an
// EgressSelectorConfiguration (KEP-1281), which selects by the network of the destination.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"

	"github.com/keelson-dev/keelson/webhook"
)

// Network is a class of destinations.
type Network string

// The networks: other components of the control plane, Pods and Services of the cluster, and the etcd servers.
const (
	ControlPlane Network = "controlplane"
	Cluster      Network = "cluster"
	Etcd         Network = "etcd"
)

// dialTimeout bounds the opening of one connection, including that of the proxy.
const dialTimeout = 30 * time.Second

// Selector selects how connections are opened. A nil Selector opens all connections directly.
type Selector struct {
	dialers map[Network]webhook.DialFunc
}

// Load reads a configuration file. It does not connect to the proxies.
func Load(file string, m *Metrics) (*Selector, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read egress selector config: %w", err)
	}
	c, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("failed to read egress selector config: %w", err)
	}
	if errs := validate(c); len(errs) > 0 {
		return nil, fmt.Errorf("failed to validate egress selector configuration: %w", errs.ToAggregate())
	}
	s := &Selector{dialers: map[Network]webhook.DialFunc{}}
	for i := range c.EgressSelections {
		selection := &c.EgressSelections[i]
		name := Network(strings.ToLower(selection.Name))
		if s.dialers[name], err = dialer(&selection.Connection, m); err != nil {
			return nil, fmt.Errorf("failed to create dialer for egressSelection %q: %w", name, err)
		}
	}
	return s, nil
}

// Dialer returns the function that opens connections to a network. It returns nil, which means direct connections, if
// the configuration does not contain the network.
func (s *Selector) Dialer(n Network) webhook.DialFunc {
	if s == nil {
		return nil
	}
	return s.dialers[n]
}

// dialer returns the function that opens connections according to a valid configuration.
func dialer(c *apiserver.Connection, m *Metrics) (webhook.DialFunc, error) {
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
		address, dial, err := dialTCP(c.Transport.TCP)
		if err != nil {
			return nil, err
		}
		p = httpConnectProxy{name: address, dial: dial}
	}
	return m.measuredDialer(p, protocol, transport), nil
}

// dialTCP returns the address of a proxy and the function that connects to it.
func dialTCP(t *apiserver.TCPTransport) (string, func(context.Context) (net.Conn, error), error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "", nil, fmt.Errorf("invalid proxy server url %q: %w", t.URL, err)
	}
	if t.TLSConfig == nil {
		return u.Host, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		}, nil
	}
	config, err := tlsConfig(t.TLSConfig)
	if err != nil {
		return "", nil, err
	}
	return u.Host, func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", u.Host)
	}, nil
}

func tlsConfig(t *apiserver.TLSConfig) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(t.ClientCert, t.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("failed to read key pair %s & %s, got %w", t.ClientCert, t.ClientKey, err)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ServerName: t.TLSServerName,
	}
	if t.CABundle == "" {
		return c, nil // the system's authorities
	}
	pem, err := os.ReadFile(t.CABundle)
	if err != nil {
		return nil, fmt.Errorf("failed to read cert file %s, got %w", t.CABundle, err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("failed to append CA cert to the cert pool")
	}
	return c, nil
}
