package serviceallocator

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// A cidr is a range that cluster IPs come from. Its first address, and the last one
// of IPv4, are never given out. Addresses that are chosen at random come from the
// upper part as long as that has any: the lower part is for those that people choose
// (KEP-3070).
type cidr struct {
	prefix      netip.Prefix
	first, last netip.Addr // given out, both inclusive
	// lower is how many addresses from first on are kept for those chosen by people.
	lower uint64
	// size is the number of addresses that can be given out; at most MaxUint64.
	size uint64
}

// shortestIPv6 is the shortest prefix of a range of IPv6.
const shortestIPv6 = 64

// newCIDR returns the range, false for one that no addresses come from.
func newCIDR(p netip.Prefix) (cidr, bool) {
	p = p.Masked()
	hostBits := p.Addr().BitLen() - p.Bits()
	if p.Addr().Is6() && p.Bits() < shortestIPv6 || hostBits < 1 {
		return cidr{}, false
	}
	all := uint64(math.MaxUint64) // of 64 bits there is one more, which is not given out
	if hostBits < 64 {
		all = 1<<hostBits - 1
	}
	c := cidr{prefix: p, first: p.Addr().Next(), size: all}
	if p.Addr().Is4() {
		c.size--
	}
	if c.size == 0 {
		return cidr{}, false
	}
	c.last = plus(c.first, c.size-1)
	c.lower = min(lowerBand(all), c.size)
	return c, true
}

// lowerBand is how many addresses of a range are kept for those chosen by people:
// between 16 and 256, a sixteenth of it. all is the number of addresses less one.
func lowerBand(all uint64) uint64 {
	const fewest, most, part = 16, 256, 16
	if all < fewest {
		return 0
	}
	n := all
	if n != math.MaxUint64 {
		n++
	}
	return min(max(n/part, fewest), most)
}

func (c cidr) contains(a netip.Addr) bool {
	return a.BitLen() == c.first.BitLen() && a.Compare(c.first) >= 0 && a.Compare(c.last) <= 0
}

// pick returns an address that is not taken, from the upper part if that has any.
// random returns a number below n.
func (c cidr) pick(taken func(netip.Addr) bool, random func(n uint64) uint64) (netip.Addr, bool) {
	if a, ok := scan(plus(c.first, c.lower), c.size-c.lower, taken, random); ok {
		return a, true
	}
	return scan(c.first, c.lower, taken, random)
}

// scan looks at n addresses from first on, beginning anywhere.
func scan(first netip.Addr, n uint64, taken func(netip.Addr) bool, random func(n uint64) uint64) (netip.Addr, bool) {
	if n == 0 {
		return netip.Addr{}, false
	}
	offset := random(n)
	for range n {
		if a := plus(first, offset); !taken(a) {
			return a, true
		}
		if offset++; offset == n {
			offset = 0
		}
	}
	return netip.Addr{}, false
}

// plus returns the address n after a. It must be of the same family.
func plus(a netip.Addr, n uint64) netip.Addr {
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	low := binary.BigEndian.Uint64(b[8:])
	if low+n < low {
		binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+1)
	}
	binary.BigEndian.PutUint64(b[8:], low+n)
	return netip.AddrFrom16(b)
}

// notInRange words a requested address outside of a range.
func (c cidr) notInRange(a netip.Addr) error {
	return fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", a, c.prefix)
}
