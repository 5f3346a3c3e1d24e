package proxy

import (
	"bytes"
	"net"
	"slices"
)

// MayConnectTo reports whether the server may connect a client to an IP address. Loopback, link-local, multicast
// and unspecified addresses are not allowed, and NAT64 addresses (RFC 6052, RFC 8215) that embed such an IPv4
// address: the network would translate them to the IPv4 address.
func MayConnectTo(ip net.IP) bool {
	return ip.IsGlobalUnicast() &&
		!slices.ContainsFunc(nat64(ip), func(embedded net.IP) bool { return !embedded.IsGlobalUnicast() })
}

// The prefixes of NAT64: the well-known prefix of 96 bits, and the prefix of 48 bits for local use, in which a network
// chooses a prefix of 48, 56, 64 or 96 bits.
var (
	wellKnownNAT64 = [12]byte{0x00, 0x64, 0xff, 0x9b}
	localNAT64     = [6]byte{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}
)

// nat64 returns the IPv4 addresses that an address may embed; the length of the local prefix is not known. After a
// prefix of less than 96 bits follow the IPv4 address, which leaves out byte 8, and then zeros.
func nat64(ip net.IP) []net.IP {
	if len(ip) != net.IPv6len {
		return nil
	}
	if [12]byte(ip[:12]) == wellKnownNAT64 {
		return []net.IP{ip[12:]}
	}
	if [6]byte(ip[:6]) != localNAT64 {
		return nil
	}
	var out []net.IP
	for _, at := range [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}} {
		if len(bytes.Trim(ip[at[3]+1:], "\x00")) == 0 {
			out = append(out, net.IPv4(ip[at[0]], ip[at[1]], ip[at[2]], ip[at[3]]))
		}
	}
	if len(out) == 0 {
		out = append(out, ip[12:])
	}
	return out
}
