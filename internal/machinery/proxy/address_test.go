package proxy

import (
	"net"
	"testing"
)

func TestMayConnectTo(t *testing.T) {
	for address, want := range map[string]bool{
		"10.1.2.3": true, "2001:db8::1": true, "fd00::1": true, "::ffff:10.0.0.1": true,
		"127.0.0.1": false, "169.254.169.254": false, "0.0.0.0": false, "224.0.0.1": false, "255.255.255.255": false,
		"::1": false, "::": false, "fe80::1": false, "ff02::1": false, "::ffff:127.0.0.1": false,
		"::ffff:169.254.169.254": false,
		// The well-known prefix, with 96 bits.
		"64:ff9b::10.0.0.1": true, "64:ff9b::127.0.0.1": false, "64:ff9b::169.254.169.254": false,
		"64:ff9b::0.0.0.0": false, "64:ff9b::224.0.0.1": false, "64:ff9b::255.255.255.255": false,
		// The prefix for local use: of 96, 48, 56 and 64 bits.
		"64:ff9b:1::10.0.0.1": true, "64:ff9b:1::127.0.0.1": false, "64:ff9b:1:2:3:4:169.254.169.254": false,
		"64:ff9b:1:a00:0:100::": true, "64:ff9b:1:7f00:0:100::": false, "64:ff9b:1:a9fe:a9:fe00::": false,
		"64:ff9b:1:5:0a:1:200:0": true, "64:ff9b:1:57f:0:1::": false,
		"64:ff9b:1:5:a:1:200:0": true, "64:ff9b:1:5:7f:0:100:0": false, "64:ff9b:1:5:a9:fea9:fe00:0": false,
		// Other prefixes embed nothing.
		"64:ff9b:2::127.0.0.1": true, "64:ff9c::127.0.0.1": true,
	} {
		ip := net.ParseIP(address)
		if ip == nil {
			t.Errorf("%s is no address", address)
		} else if got := MayConnectTo(ip); got != want {
			t.Errorf("%s (%v): %v", address, nat64(ip), got)
		}
	}
}
