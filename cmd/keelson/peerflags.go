package main

import (
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
)

// peerFlags adds the flags for forwarding requests to other API servers on the same store.
func peerFlags(f *pflag.FlagSet, c *config.Peers) {
	f.StringVar(
		&c.CAFile, "peer-ca-file", "",
		"If set and the UnknownVersionInteroperabilityProxy feature gate is enabled, this file will be used to verify serving certificates of peer kube-apiservers. This flag is only used in clusters configured with multiple kube-apiservers for high availability.",
	)
	f.StringVar(
		&c.AdvertiseIP, "peer-advertise-ip", "",
		"If set and the UnknownVersionInteroperabilityProxy feature gate is enabled, this IP will be used by peer kube-apiservers to proxy requests to this kube-apiserver when the request cannot be handled by the peer due to version skew between the kube-apiservers. This flag is only used in clusters configured with multiple kube-apiservers for high availability. ",
	)
	f.StringVar(
		&c.AdvertisePort, "peer-advertise-port", "",
		"If set and the UnknownVersionInteroperabilityProxy feature gate is enabled, this port will be used by peer kube-apiservers to proxy requests to this kube-apiserver when the request cannot be handled by the peer due to version skew between the kube-apiservers. This flag is only used in clusters configured with multiple kube-apiservers for high availability. ",
	)
}
