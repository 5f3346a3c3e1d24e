package listener

import (
	"net"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/keelson-dev/keelson/config"
)

// advertised returns the address at which others reach the server that listens on an address.
func advertised(c *config.ControlPlane, address string) (net.IP, error) {
	if a := net.ParseIP(c.AdvertiseAddress); a != nil && !a.IsUnspecified() {
		return a, nil
	}
	bound := net.ParseIP(address)
	if !bound.IsUnspecified() {
		return bound, nil
	}
	ip, err := utilnet.ResolveBindAddress(bound)
	if err != nil {
		return nil, config.Errorf("unable to find suitable network address.error='%w'. "+
			"Try to set the AdvertiseAddress directly or provide a valid BindAddress to fix this: "+
			"{Network.ControlPlane.AdvertiseAddress}, {Serving.Address}", err)
	}
	return ip, nil
}

// reaches reports whether connections to address arrive at a socket that is bound to the address bound.
func reaches(bound, address net.IP) bool {
	if bound.IsUnspecified() {
		return bound.To4() == nil || address.To4() != nil // 0.0.0.0 is IPv4 only, :: is both
	}
	return bound.Equal(address)
}
