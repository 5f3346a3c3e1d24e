package serviceallocator

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// addressesIn lists the addresses that can be allocated from a range, one by one.
func addressesIn(p netip.Prefix) []netip.Addr {
	var all []netip.Addr
	for a := p.Masked().Addr(); p.Contains(a); a = a.Next() {
		all = append(all, a)
	}
	all = all[1:] // the address of the network
	if p.Addr().Is4() && len(all) > 0 {
		all = all[:len(all)-1] // the broadcast address
	}
	return all
}

func TestRangesAgainstAddressesOneByOne(t *testing.T) {
	for _, text := range []string{"10.0.0.0/29", "10.0.0.8/30", "10.0.0.0/28", "10.0.0.0/27", "10.1.2.3/24", "10.0.0.0/20",
		"10.255.255.0/24", "fd00::/125", "fd00::ff00/120", "fd00::/116"} {
		p := netip.MustParsePrefix(text)
		want := addressesIn(p)
		c, ok := newCIDR(p)
		if !ok {
			t.Fatalf("%s gives out nothing", text)
		}
		if c.size != uint64(len(want)) || c.first != want[0] || c.last != want[len(want)-1] {
			t.Errorf("%s: %d from %s to %s, want %d from %s to %s", text, c.size, c.first, c.last, len(want), want[0],
				want[len(want)-1])
		}
		for _, a := range want {
			if !c.contains(a) {
				t.Errorf("%s does not contain %s", text, a)
			}
		}
		for _, a := range []netip.Addr{want[0].Prev(), want[len(want)-1].Next()} {
			if c.contains(a) {
				t.Errorf("%s contains %s", text, a)
			}
		}
		drain(t, c, want)
	}
}

// drain allocates all addresses of a range. It checks that each address is allocated once, and that the reserved
// ones come last.
func drain(t *testing.T, c cidr, want []netip.Addr) {
	t.Helper()
	taken := map[netip.Addr]bool{}
	for i := range want {
		a, ok := c.findFree(func(a netip.Addr) bool { return taken[a] }, rand.Uint64N)
		if !ok || taken[a] || !c.contains(a) {
			t.Fatalf("%s: %s, %v after %d", c.prefix, a, ok, i)
		}
		taken[a] = true
		upper := a.Compare(addOffset(c.first, c.reserved)) >= 0
		if wantUpper := uint64(i) < c.size-c.reserved; upper != wantUpper {
			t.Fatalf("%s: address %d is %s, want one of the upper part: %v", c.prefix, i, a, wantUpper)
		}
	}
	if a, ok := c.findFree(func(a netip.Addr) bool { return taken[a] }, rand.Uint64N); ok {
		t.Errorf("%s: %s of a range that is full", c.prefix, a)
	}
}

// TestReservedAddresses has expected sizes from kube-apiserver 1.36, KEP-3070 and KEP-3668.
func TestReservedAddresses(t *testing.T) {
	for text, want := range map[string]uint64{
		"10.0.0.0/29": 0, "10.0.0.0/28": 0, "10.0.0.0/27": 16, "10.0.0.0/24": 16, "10.0.0.0/23": 32,
		"10.0.0.0/20": 256, "10.0.0.0/16": 256, "fd00::/112": 256, "fd00::/64": 256,
	} {
		if c, _ := newCIDR(netip.MustParsePrefix(text)); c.reserved != want {
			t.Errorf("%s: %d, want %d", text, c.reserved, want)
		}
	}
	for r, want := range map[PortRange]int{{1, 16}: 0, {1, 17}: 16, {1, 600}: 18, DefaultNodePorts: 86, {1, 65535}: 128} {
		if got := r.reserved(); got != want {
			t.Errorf("%s: %d, want %d", r, got, want)
		}
	}
}

func TestRangesWithoutAddresses(t *testing.T) {
	for _, text := range []string{"10.0.0.0/32", "10.0.0.0/31", "fd00::/128", "fd00::/63"} {
		if c, ok := newCIDR(netip.MustParsePrefix(text)); ok {
			t.Errorf("%s gives out %d addresses", text, c.size)
		}
	}
}

func TestAddOffsetCarries(t *testing.T) {
	for _, c := range []struct {
		from string
		n    uint64
		want string
	}{
		{"10.0.0.255", 1, "10.0.1.0"}, {"10.0.0.0", 1 << 16, "10.1.0.0"},
		{"fd00::ffff:ffff:ffff:ffff", 1, "fd00:0:0:1::"}, {"fd00::", 1 << 63, "fd00::8000:0:0:0"},
	} {
		if got := addOffset(netip.MustParseAddr(c.from), c.n); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s + %d = %s, want %s", c.from, c.n, got, c.want)
		}
	}
}
