package fairshare

import (
	"net/netip"
	"sync"
)

// Addresses limits how many places all client addresses together, and each address, may have at the same time. A
// place is, for example, a running request. It is for requests before authentication, which have no user: anybody
// may send them, so one address must not be able to take all places. Its methods may be called by many goroutines.
type Addresses struct {
	most, each int

	mu    sync.Mutex // guards what follows
	taken map[netip.Addr]int
	all   int // of taken
}

// NewAddresses returns Addresses with a number of places for all addresses together, and for each address.
func NewAddresses(all, each int) *Addresses {
	return &Addresses{most: all, each: each, taken: map[netip.Addr]int{}}
}

// Take takes a place for an address and returns true, or takes nothing and returns false. The caller must call Free.
func (a *Addresses) Take(address netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= a.most || a.taken[address] >= a.each {
		return false
	}
	a.all++
	a.taken[address]++
	return true
}

// Free gives a place of an address back.
func (a *Addresses) Free(address netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.taken[address]--; a.taken[address] == 0 {
		delete(a.taken, address)
	}
}

// Taken returns how many places are taken.
func (a *Addresses) Taken() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

// ClientAddress returns the address that a request counts for; remote is http.Request.RemoteAddr. An IPv6 address
// is cut to its first 64 bits, because usually one client has all addresses that begin with them. For text that is
// not an address and a port it returns the zero Addr, so all such requests count together.
func ClientAddress(remote string) netip.Addr {
	both, _ := netip.ParseAddrPort(remote)
	address := both.Addr().Unmap()
	if address.Is6() {
		if prefix, err := address.Prefix(64); err == nil {
			return prefix.Addr()
		}
	}
	return address
}
