package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Values of ControlPlane.EndpointReconciler.
const (
	ReconcilerLease       = "lease"
	ReconcilerMasterCount = "master-count"
	ReconcilerNone        = "none"
)

// Network has the addresses of Services, and how the server reaches others and is reached by them.
type Network struct {
	// ServiceClusterIPRange has the ranges of service addresses in CIDR notation, one of each IP family at most, separated by
	// a comma. The default is 10.0.0.0/24 (--service-cluster-ip-range).
	ServiceClusterIPRange string `flag:"service-cluster-ip-range"`
	// ServiceNodePortRange is the range of node ports: first-last, both inclusive. The default is 30000-32767
	// (--service-node-port-range).
	ServiceNodePortRange string `flag:"service-node-port-range"`
	// EgressConfigFile is an EgressSelectorConfiguration, which defines the proxies through which the server opens
	// connections. If it is empty, the server connects directly (--egress-selector-config-file).
	EgressConfigFile string `flag:"egress-selector-config-file"`
	// ControlPlane configures how the server presents itself in the cluster.
	ControlPlane ControlPlane
	// Connections configures the connections to nodes, pods and services.
	Connections Connections
	// Aggregation configures how requests are forwarded to extension API servers.
	Aggregation Aggregation
	// Peers configures how requests are forwarded to other servers on the same etcd cluster.
	Peers Peers
}

// ControlPlane configures how the server presents itself in the cluster.
type ControlPlane struct {
	// AdvertiseAddress is the IP address for clients on other machines. If it is empty or unspecified, such as
	// 0.0.0.0, the default is Serving.Address or, if that is unspecified too, the address of the host. With an
	// EndpointReconciler other than ReconcilerNone it must not be a loopback or link-local address
	// (--advertise-address).
	AdvertiseAddress string `flag:"advertise-address"`
	// EndpointReconciler is ReconcilerLease, the default (the endpoints of the Service kubernetes are the servers with a
	// lease in the store), or ReconcilerNone. ReconcilerMasterCount is treated as ReconcilerLease
	// (--endpoint-reconciler-type).
	EndpointReconciler string `flag:"endpoint-reconciler-type"`
	// Hostname is the name of this machine, from which the name of the identity Lease is made; "" asks the system. Servers
	// on one machine that share a store need different names if they are to forward requests to each other.
	Hostname string
	// ServiceNodePort makes the Service kubernetes one of type NodePort with this port. 0, the default, means type ClusterIP
	// (--kubernetes-service-node-port).
	ServiceNodePort int `flag:"kubernetes-service-node-port"`
}

// Connections configures the connections to nodes, pods and services.
type Connections struct {
	// KubeletCAFile is a PEM file of the authorities of the certificates of kubelets. If it is empty the certificates are not
	// verified (--kubelet-certificate-authority).
	KubeletCAFile string `flag:"kubelet-certificate-authority"`
	// KubeletCertFile is a PEM file of the certificate that the server shows to kubelets. Its changes are used for new
	// connections (--kubelet-client-certificate).
	KubeletCertFile string `flag:"kubelet-client-certificate"`
	// KubeletKeyFile is a PEM file of the key of KubeletCertFile (--kubelet-client-key).
	KubeletKeyFile string `flag:"kubelet-client-key"`
	// KubeletAddressTypes are the types of addresses of nodes, the preferred one first. The default is Hostname, InternalDNS,
	// InternalIP, ExternalDNS, ExternalIP (--kubelet-preferred-address-types).
	KubeletAddressTypes []string `flag:"kubelet-preferred-address-types"`
	// KubeletTimeout is how long connecting to a kubelet may take. The default is 5 seconds; None is no limit
	// (--kubelet-timeout).
	KubeletTimeout time.Duration `flag:"kubelet-timeout"`
	// KubeletPort is the port of kubelets whose Node object has no port. The default is 10250 (--kubelet-port).
	KubeletPort int `flag:"kubelet-port"`
	// MaxBytesPerSecond limits each direction of a connection that was upgraded to another protocol, in bytes in a second. 0,
	// the default, is no limit (--max-connection-bytes-per-sec).
	MaxBytesPerSecond int64 `flag:"max-connection-bytes-per-sec"`
	// Dial opens the connections to an address ("host:port"); the network is "tcp". Nil opens them directly, or as
	// configured in EgressConfigFile. Programs that embed the server use it to reach nodes and pods in their own way.
	// The addresses are those in the objects of the API, checked as for direct connections.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Aggregation configures how requests are forwarded to extension API servers.
type Aggregation struct {
	// ByEndpoints makes the server call extension API servers and webhooks through the endpoints of their
	// Services, instead of through the cluster IPs (--enable-aggregator-routing).
	ByEndpoints bool `flag:"enable-aggregator-routing"`
	// ProxyClientCertFile is a PEM file of the certificate by which extension API servers recognize this one. It may be
	// replaced while the server runs. If it is empty and no trusted authority is configured (ClientCAFile,
	// RequestHeader), the server makes a certificate and its authority (--proxy-client-cert-file).
	ProxyClientCertFile string `flag:"proxy-client-cert-file"`
	// ProxyClientKeyFile is a PEM file of the key of ProxyClientCertFile (--proxy-client-key-file).
	ProxyClientKeyFile string `flag:"proxy-client-key-file"`
	// PassRedirects sends redirects of extension API servers to the client, instead of answering 502
	// (--aggregator-reject-forwarding-redirect=false).
	PassRedirects bool `flag:"!aggregator-reject-forwarding-redirect"`
}

// Peers configures how requests are forwarded to other API servers on the same etcd cluster, which serve resources that
// this one does not. It needs the feature gate UnknownVersionInteroperabilityProxy, and has no effect on other stores.
type Peers struct {
	// CAFile is a PEM file of the authorities of the serving certificates of peers. If it is empty, this server forwards
	// nothing; peers may still forward requests to it (--peer-ca-file).
	CAFile string `flag:"peer-ca-file"`
	// AdvertiseIP is the address where peers reach this server. If it or AdvertisePort is empty, peers use the address and
	// the port that the server advertises to the cluster (--peer-advertise-ip).
	AdvertiseIP string `flag:"peer-advertise-ip"`
	// AdvertisePort is the port where peers reach this server (--peer-advertise-port).
	AdvertisePort string `flag:"peer-advertise-port"`
}

// ServiceRanges returns the ranges of ServiceClusterIPRange. The address of the Service kubernetes is in the first
// one.
func (n *Network) ServiceRanges() ([]netip.Prefix, error) {
	const fewestAddressBits, mostAddressBits = 3, 20 // at least 8 addresses; an allocation map that fits in memory
	parts := strings.Split(n.ServiceClusterIPRange, ",")
	if len(parts) > 2 {
		return nil, errors.New("want one range, or one of each IP family")
	}
	var out []netip.Prefix
	for _, part := range parts {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is not a range in CIDR notation", part)
		}
		bits := p.Addr().BitLen() - p.Bits()
		if bits < fewestAddressBits {
			return nil, fmt.Errorf("%s is too small: it must have at least %d IP addresses", p, 1<<fewestAddressBits)
		}
		if bits > mostAddressBits {
			return nil, fmt.Errorf("%s is too large: the prefix must be /%d or longer", p, p.Addr().BitLen()-mostAddressBits)
		}
		out = append(out, p.Masked())
	}
	if len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, errors.New("the two ranges must be of different IP families")
	}
	return out, nil
}
