package console

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxExchanges is how many codes are exchanged at a time, and addressExchanges how many of them for one client address.
	maxExchanges, addressExchanges = 16, 2
	// maxQueue is how many requests wait for that, and queueTime how long.
	maxQueue, queueTime = 32, 5 * time.Second
)

// places limits how many codes are exchanged at a time. Anybody may send codes, so each client address has a share only. The zero
// value can be used.
type places struct {
	mu      sync.Mutex         // guards what follows
	taken   map[netip.Addr]int // by client address, none is 0
	all     int                // of taken
	waiting int
	freed   chan struct{} // closed when a place becomes free; nil if nobody waits
}

// take waits for a place. It fails with errBusy if that takes too long, or too many others wait. The caller must call free.
func (p *places) take(ctx context.Context, address netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.enter(address) {
		if p.waiting >= maxQueue {
			return errBusy
		}
		p.waiting++
		defer func() { p.waiting-- }()
		ctx, cancel := context.WithTimeout(ctx, queueTime)
		defer cancel()
		for !p.enter(address) {
			if ctx.Err() != nil {
				return errBusy
			}
			p.wait(ctx)
		}
	}
	return nil
}

// enter takes a place if one is free.
func (p *places) enter(address netip.Addr) bool {
	if p.all >= maxExchanges || p.taken[address] >= addressExchanges {
		return false
	}
	if p.taken == nil {
		p.taken = map[netip.Addr]int{}
	}
	p.all++
	p.taken[address]++
	return true
}

// wait returns when a place may be free, or ctx has ended. The caller holds the lock, which is free meanwhile.
func (p *places) wait(ctx context.Context) {
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	freed := p.freed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-freed:
	case <-ctx.Done():
	}
}

// free gives a place back.
func (p *places) free(address netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.taken[address]--; p.taken[address] == 0 {
		delete(p.taken, address)
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// clientAddress returns the address whose share a request uses. Whoever has an address of IPv6 usually has all those that begin with
// the same 64 bits. All that cannot be read count as one.
func clientAddress(remote string) netip.Addr {
	both, _ := netip.ParseAddrPort(remote)
	address := both.Addr().Unmap()
	if address.Is6() {
		if prefix, err := address.Prefix(64); err == nil {
			return prefix.Addr()
		}
	}
	return address
}
