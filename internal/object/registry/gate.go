package registry

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
)

// A Gate admits the creates of a resource until it is closed, and reports when all admitted creates have ended.
// After closing the gate and waiting for Drain, a list of the objects is complete: no creates follow. The zero
// value is open. A nil Gate is always open. All methods may be called concurrently.
type Gate struct {
	// state is the number of creates inside; closedGate is added to it while the gate is closed.
	state atomic.Int64

	mu      sync.Mutex    // guards changes of closedGate in state, and emptied
	emptied chan struct{} // closed when the closed gate has no creates inside; nil if nobody waits
}

const closedGate = math.MinInt64

// Enter counts a create until Leave. It returns false, and counts nothing, if the gate is closed.
func (g *Gate) Enter() bool {
	switch {
	case g == nil:
		return true
	case g.IsClosed():
		return false // not counted: many refused creates could keep Drain from ever finding 0
	case g.state.Add(1) > 0:
		return true
	}
	g.Leave()
	return false
}

// Leave ends the create of an Enter that returned true.
func (g *Gate) Leave() {
	if g != nil && g.state.Add(-1) == closedGate {
		g.wake()
	}
}

// IsClosed reports whether Enter returns false now.
func (g *Gate) IsClosed() bool { return g != nil && g.state.Load() < 0 }

// SetClosed closes or opens the gate.
func (g *Gate) SetClosed(closed bool) {
	g.mu.Lock()
	if closed != g.IsClosed() {
		g.state.Add(closedGate) // closedGate is the highest bit, so adding it a second time removes it
	}
	g.mu.Unlock()
	g.wake()
}

// wake makes all waiting calls of Drain check the gate again.
func (g *Gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.emptied != nil {
		close(g.emptied)
		g.emptied = nil
	}
}

// Drain waits until no create is inside, or until the gate is opened. It returns the error of ctx if ctx ends before.
func (g *Gate) Drain(ctx context.Context) error {
	for {
		g.mu.Lock()
		if n := g.state.Load(); n >= 0 || n == closedGate {
			g.mu.Unlock()
			return nil
		}
		if g.emptied == nil {
			g.emptied = make(chan struct{})
		}
		emptied := g.emptied
		g.mu.Unlock()
		select {
		case <-emptied:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
