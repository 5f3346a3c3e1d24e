package server

import (
	"fmt"

	"github.com/keelson-dev/keelson/internal/api/connection"
	"github.com/keelson-dev/keelson/internal/machinery/proxy"
	"github.com/keelson-dev/keelson/internal/server/egress"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// newConnections returns the Network that opens connections to nodes, pods and services.
func newConnections(o *apiOptions) (*connection.Network, error) {
	c := &o.config.Network.Connections
	dial := proxy.Dial(c.Dial)
	if dial == nil {
		dial = proxy.Dial(o.egress.Dialer(egress.Cluster))
	}
	options := connection.Options{
		Objects: o.registry, Dial: dial, Lookup: o.config.lookup,
		AddressTypes: c.KubeletAddressTypes, Port: c.KubeletPort, Timeout: c.KubeletTimeout,
	}
	files := o.config.files
	if c.KubeletCertFile != "" {
		var err error
		options.Certificate, err = files.Pair(
			reload.Pair{Flag: "--kubelet-client-certificate", CertFile: c.KubeletCertFile, KeyFile: c.KubeletKeyFile})
		if err != nil {
			return nil, fmt.Errorf("connections to kubelets: %w", err)
		}
	}
	network := connection.New(options)
	if file := c.KubeletCAFile; file != "" {
		err := files.Authorities("--kubelet-certificate-authority", file, network.SetAuthorities)
		if err != nil {
			return nil, fmt.Errorf("connections to kubelets: %w", err)
		}
	}
	return network, nil
}
