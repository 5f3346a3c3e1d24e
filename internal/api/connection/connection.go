// Package connection knows how nodes, pods and services of the cluster are reached: the addresses of kubelets, the
// credentials that the server shows them, and which addresses proxies may connect to.
package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// Objects reads objects; *registry.Registry is one.
type Objects interface {
	// Get returns the latest object of a resource, in its storage version. The error is NotFound if there is none.
	Get(ctx context.Context, r schema.GroupResource, namespace, name string) (registry.Object, error)
	// List returns the objects of a resource in a namespace, in its storage version.
	List(ctx context.Context, r schema.GroupResource, namespace string) ([]registry.Object, error)
}

// A Lookup returns the addresses of a host. If the host is an IP address, it returns this address.
type Lookup func(ctx context.Context, host string) ([]net.IPAddr, error)

// Options configure a Network.
type Options struct {
	Objects Objects
	// Dial opens connections; nil opens them directly.
	Dial proxy.Dial
	// Lookup resolves the names of hosts; nil means the resolver of the system.
	Lookup Lookup
	// Certificate returns the certificate that the server shows to kubelets. It is called for each connection; nil shows
	// none.
	Certificate func() (*tls.Certificate, error)
	// AddressTypes are the types of addresses in the status of a node, the preferred one first.
	AddressTypes []string
	// Port is the port of kubelets whose node does not name one.
	Port int
	// Timeout limits the time for connecting to a kubelet.
	Timeout time.Duration
}

// Network implements registry.Cluster.
type Network struct {
	Objects
	o       Options
	kubelet atomic.Pointer[registry.Kubelet] // has no fields that differ between nodes, such as Host
	direct  *proxy.Transport
}

var _ registry.Cluster = (*Network)(nil)

// New returns a Network that does not verify the certificates of kubelets; see SetAuthorities.
func New(o Options) *Network {
	n := &Network{Objects: o.Objects, o: o}
	if n.o.Lookup == nil {
		n.o.Lookup = net.DefaultResolver.LookupIPAddr
	}
	n.SetAuthorities(nil)
	n.direct = proxy.NewTransport(proxy.TransportOptions{
		Dial: o.Dial,
		//nolint:gosec // the names in the certificates of pods are not known
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
	})
	return n
}

// SetAuthorities replaces the authorities that the certificates of kubelets are verified by; nil means that they
// are not verified. Requests that begin later use no connection that was opened before. Requests in progress
// continue.
func (n *Network) SetAuthorities(authorities *x509.CertPool) {
	verified := n.o.tlsConfig(authorities)
	unverified := verified.Clone()
	unverified.InsecureSkipVerify, unverified.RootCAs = true, nil //nolint:gosec // a client has asked for it
	options := proxy.TransportOptions{Dial: limited(n.o.Dial, n.o.Timeout), TLS: verified}
	kubelet := &registry.Kubelet{Transport: proxy.NewTransport(options)}
	options.Pinned = true
	kubelet.Pinned = proxy.NewTransport(options)
	kubelet.Unverified = proxy.NewTransport(proxy.TransportOptions{Dial: options.Dial, TLS: unverified})
	if before := n.kubelet.Swap(kubelet); before != nil {
		closeIdle(before)
	}
}

// Close closes idle connections.
func (n *Network) Close() {
	closeIdle(n.kubelet.Load())
	n.direct.CloseIdle()
}

// closeIdle closes idle connections to kubelets.
func closeIdle(k *registry.Kubelet) {
	for _, t := range []*proxy.Transport{k.Transport, k.Unverified, k.Pinned} {
		t.CloseIdle()
	}
}

func limited(dial proxy.Dial, timeout time.Duration) proxy.Dial {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return dial(ctx, network, address)
	}
}

// tlsConfig returns the TLS configuration for connections to kubelets.
func (o *Options) tlsConfig(authorities *x509.CertPool) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: authorities,
		InsecureSkipVerify: authorities == nil, //nolint:gosec // as in kube-apiserver
	}
	if o.Certificate != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.Certificate() }
	}
	return c
}

// Direct implements registry.Cluster.
func (n *Network) Direct() *proxy.Transport { return n.direct }

// Kubelet implements registry.Cluster.
func (n *Network) Kubelet(ctx context.Context, name string) (*registry.Kubelet, error) {
	obj, err := n.Get(ctx, corev1.Resource("nodes"), "", name)
	if err != nil {
		return nil, err
	}
	status := &obj.(*corev1.Node).Status
	k := *n.kubelet.Load()
	if k.Host, err = n.preferredAddress(status.Addresses); err != nil {
		return nil, err
	}
	port := int(status.DaemonEndpoints.KubeletEndpoint.Port)
	if port <= 0 {
		port = n.o.Port
	}
	k.Port, k.Features = strconv.Itoa(port), status.DeclaredFeatures
	return &k, nil
}

func (n *Network) preferredAddress(addresses []corev1.NodeAddress) (string, error) {
	for _, want := range n.o.AddressTypes {
		for i := range addresses {
			if string(addresses[i].Type) == want {
				return addresses[i].Address, nil
			}
		}
	}
	return "", fmt.Errorf("no preferred addresses found; known addresses: %v", addresses)
}

// Resolve implements registry.Cluster.
func (n *Network) Resolve(ctx context.Context, host string) ([]string, error) {
	found, err := n.o.Lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("no addresses for hostname")
	}
	addresses := make([]string, 0, len(found))
	for i := range found {
		if !proxy.MayConnectTo(found[i].IP) {
			return nil, errors.New("address not allowed")
		}
		addresses = append(addresses, found[i].String())
	}
	return addresses, nil
}
