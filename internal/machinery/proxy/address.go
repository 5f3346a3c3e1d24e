package proxy

import (
	"bytes"
	"net"
	"slices"
)

// MayConnectTo reports whether an IP address is one that clients may be connected to through the server: not loopback,
// link-local, multicast or unspecified, and not such an IPv4 address embedded in one of NAT64 (RFC 6052, RFC 8215), which
// the network translates back.
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

// nat64 returns the IPv4 addresses that an address may embed. With a prefix of less than 96 bits the rest of the address
// is zero, and byte 8 is left out.
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
