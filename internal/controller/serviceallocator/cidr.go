package serviceallocator

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
)

// A cidr is a range of cluster IPs. The first address of the prefix, and for IPv4 also the last, are never
// allocated. Random addresses are above the reserved part as long as free addresses are left there; the reserved
// part is for addresses that clients choose (KEP-3070).
type cidr struct {
	prefix      netip.Prefix
	first, last netip.Addr // the first and the last address that can be allocated
	// reserved is the number of addresses in the reserved part, which begins with first.
	reserved uint64
	// size is the number of addresses that can be allocated, at most MaxUint64.
	size uint64
}

// minIPv6PrefixBits is the least prefix length of an IPv6 range.
const minIPv6PrefixBits = 64

// newCIDR returns the range of a prefix, false if no addresses can be allocated from it.
func newCIDR(p netip.Prefix) (cidr, bool) {
	p = p.Masked()
	hostBits := p.Addr().BitLen() - p.Bits()
	if p.Addr().Is6() && p.Bits() < minIPv6PrefixBits || hostBits < 1 {
		return cidr{}, false
	}
	all := uint64(math.MaxUint64) // with 64 host bits there are 1<<64 addresses; the last one is not used
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
	c.last = addOffset(c.first, c.size-1)
	c.reserved = min(reservedSize(all), c.size)
	return c, true
}

// reservedSize returns how many addresses of a range are reserved for clients that choose an address: a sixteenth of
// the range, at least 16 and at most 256. all is the number of addresses minus one.
func reservedSize(all uint64) uint64 {
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

// findFree returns an address that is not taken, preferably not from the reserved part.
// random(n) has to return a random number less than n.
func (c cidr) findFree(taken func(netip.Addr) bool, random func(n uint64) uint64) (netip.Addr, bool) {
	if a, ok := scan(addOffset(c.first, c.reserved), c.size-c.reserved, taken, random); ok {
		return a, true
	}
	return scan(c.first, c.reserved, taken, random)
}

// scan returns an address that is not taken among the n addresses from first on. It starts at a random address and
// continues at first after the last.
func scan(first netip.Addr, n uint64, taken func(netip.Addr) bool, random func(n uint64) uint64) (netip.Addr, bool) {
	if n == 0 {
		return netip.Addr{}, false
	}
	offset := random(n)
	for range n {
		if a := addOffset(first, offset); !taken(a) {
			return a, true
		}
		if offset++; offset == n {
			offset = 0
		}
	}
	return netip.Addr{}, false
}

// addOffset returns the address a+n, which must be of the same family.
func addOffset(a netip.Addr, n uint64) netip.Addr {
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

// notInRange returns the error for a requested address outside of the range.
func (c cidr) notInRange(a netip.Addr) error {
	return fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", a, c.prefix)
}
