package fairshare

import (
	"net/netip"
	"sync"
)

// Addresses divides places between client addresses. It is for requests before authentication, which have no user: anybody may send them,
// so each address has a share only. Its methods may be called by many goroutines.
type Addresses struct {
	most, each int

	mu    sync.Mutex // guards what follows
	taken map[netip.Addr]int
	all   int // of taken
}

// NewAddresses returns Addresses with places for all addresses, and for each of them.
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

// ClientAddress returns the address whose share a request uses, from http.Request.RemoteAddr. Whoever has an address of IPv6 usually has
// all those that begin with the same 64 bits. All that cannot be read count as one.
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
