package console

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
)

const (
	// maxExchanges is the largest number of codes that are exchanged at a time, addressExchanges that for one
	// client address.
	maxExchanges, addressExchanges = 16, 2
	// maxQueue is the largest number of requests that wait for a place, and queueTime the longest wait.
	maxQueue, queueTime = 32, 5 * time.Second
)

// places limits the exchanges of codes at a time, in total and for each client address, because anybody may send
// codes.
type places struct {
	taken *fairshare.Addresses

	mu      sync.Mutex // guards the fields below
	waiting int
	freed   chan struct{} // closed when a place becomes free; nil if nobody waits
}

// take waits for a place. It fails with errBusy if that takes too long, or too many others wait. The caller must call free.
func (p *places) take(ctx context.Context, address netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.taken.Take(address) {
		if p.waiting >= maxQueue {
			return errBusy
		}
		p.waiting++
		defer func() { p.waiting-- }()
		ctx, cancel := context.WithTimeout(ctx, queueTime)
		defer cancel()
		for !p.taken.Take(address) {
			if ctx.Err() != nil {
				return errBusy
			}
			p.wait(ctx)
		}
	}
	return nil
}

// newPlaces returns places that are all free.
func newPlaces() *places {
	return &places{taken: fairshare.NewAddresses(maxExchanges, addressExchanges)}
}

// wait returns when a place may be free, or ctx has ended. The caller holds mu; wait unlocks it while it waits.
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

// free makes a place free again.
func (p *places) free(address netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken.Free(address)
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}
