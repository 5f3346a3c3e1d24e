package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/api/connection"
	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/server/egress"
)

// ConnectionsConfig configures the connections to nodes, pods and services.
type ConnectionsConfig struct {
	// KubeletCertificateAuthority is a PEM file of the authorities of the certificates of kubelets. If it is empty the
	// certificates are not verified.
	KubeletCertificateAuthority string
	// KubeletClientCertificate and KubeletClientKey are PEM files of the certificate that the server shows to kubelets.
	// Changes of the files are used for new connections.
	KubeletClientCertificate, KubeletClientKey string
	// KubeletPreferredAddressTypes are the types of addresses of nodes, the preferred one first.
	KubeletPreferredAddressTypes []string
	// KubeletTimeout is how long connecting to a kubelet may take.
	KubeletTimeout time.Duration
	// KubeletPort is the port of kubelets whose node does not name one.
	KubeletPort int
	// MaxBytesPerSecond limits each direction of a connection that was upgraded to another protocol. 0 is no limit.
	MaxBytesPerSecond int64
	// Dial opens the connections; nil opens them directly, or as the egress selector says. Programs that embed the
	// server use it to reach nodes and pods in their own way. The addresses are those in the objects of the API, checked
	// as for direct connections.
	Dial proxy.Dial

	// lookup finds the addresses of hosts; nil asks the resolver of the system. Tests set it.
	lookup connection.Lookup
}

// defaultConnections are the defaults of kube-apiserver.
func defaultConnections() ConnectionsConfig {
	return ConnectionsConfig{
		KubeletPreferredAddressTypes: []string{"Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"},
		KubeletTimeout:               5 * time.Second,
		KubeletPort:                  10250,
	}
}

// validate returns what is wrong with the configuration.
func (c *ConnectionsConfig) validate() []error {
	var errs []error
	if (c.KubeletClientCertificate == "") != (c.KubeletClientKey == "") {
		errs = append(errs, errors.New("--kubelet-client-certificate and --kubelet-client-key must be given together"))
	}
	if c.MaxBytesPerSecond < 0 {
		errs = append(errs, errors.New("--max-connection-bytes-per-sec must not be negative"))
	}
	if c.KubeletPort < 1 || c.KubeletPort > 65535 {
		errs = append(errs, fmt.Errorf("--kubelet-port must be between 1 and 65535, not %d", c.KubeletPort))
	}
	return errs
}

// newConnections returns how nodes, pods and services are reached.
func newConnections(o *apiOptions) (*connection.Network, error) {
	c := &o.config.Connections
	dial := c.Dial
	if dial == nil {
		dial = proxy.Dial(o.egress.Dialer(egress.Cluster))
	}
	options := connection.Options{
		Objects: o.registry, Dial: dial, Lookup: c.lookup,
		AddressTypes: c.KubeletPreferredAddressTypes, Port: c.KubeletPort, Timeout: c.KubeletTimeout,
	}
	files := o.config.files
	if c.KubeletClientCertificate != "" {
		var err error
		options.Certificate, err = files.pair(
			pair{"--kubelet-client-certificate", c.KubeletClientCertificate, c.KubeletClientKey, nil})
		if err != nil {
			return nil, fmt.Errorf("connections to kubelets: %w", err)
		}
	}
	network := connection.New(options)
	if file := c.KubeletCertificateAuthority; file != "" {
		err := files.authorities("--kubelet-certificate-authority", file, network.SetAuthorities)
		if err != nil {
			return nil, fmt.Errorf("connections to kubelets: %w", err)
		}
	}
	return network, nil
}
