// Package gate runs work of the server only while certain conditions are true.
package gate

import (
	"context"
	"sync"

	"github.com/keelson-dev/keelson/internal/machinery/activity"
)

// Gate is open while all its conditions are true; one without conditions is always open. Its methods may be called concurrently, except
// Condition and Track, which must be called before the others. The zero value is a gate without conditions.
type Gate struct {
	mu         sync.Mutex // guards what follows
	conditions []state
	// changed is closed when the gate opens or closes, and replaced by a new channel; nil if nobody waits.
	changed chan struct{}
	parts   []*activity.Part
}

// state is what is known of a condition, or of a gate. A gate has the least state that one of its conditions has.
type state int

const (
	no state = iota
	unknown
	yes
)

// Condition adds a condition, and returns the function that says whether it is true. Until the first call this is unknown, and the gate is
// closed.
func (g *Gate) Condition() (set func(bool)) {
	i := len(g.conditions)
	g.conditions = append(g.conditions, unknown)
	return func(holds bool) {
		to := no
		if holds {
			to = yes
		}
		g.set(i, to)
	}
}

// Track registers the activity of work behind the gate. The activity is starting until the gate's state is known and the work has started,
// and stopped while the gate is closed.
func (g *Gate) Track(p *activity.Part) {
	p.Starting()
	g.parts = append(g.parts, p)
}

func (g *Gate) set(condition int, to state) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.state()
	g.conditions[condition] = to
	after := g.state()
	if before == after {
		return
	}
	for _, p := range g.parts {
		if after == no {
			p.Stopped()
		} else {
			p.Starting()
		}
	}
	if g.changed != nil && (before == yes || after == yes) {
		close(g.changed)
		g.changed = nil
	}
}

// state returns the state of the gate. The caller holds mu.
func (g *Gate) state() state {
	least := yes
	for _, s := range g.conditions {
		least = min(least, s)
	}
	return least
}

// now reports whether the gate is open, and returns a channel that is closed when this changes.
func (g *Gate) now() (open bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.state() == yes, g.changed
}

// While runs work whenever the gate is open, until ctx ends. When the gate closes, the context of the work ends, and While waits until it
// has returned. Work that returns while the gate is open is not run again; While returns its error.
func (g *Gate) While(ctx context.Context, run func(context.Context) error) error {
	for {
		open, changed := g.now()
		if !open {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			continue
		}
		if err := runUntil(ctx, changed, run); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-changed:
		default:
			return nil // the work has ended by itself
		}
	}
}

// runUntil runs work until stop is closed or ctx ends. It does not return an error that the work returns after that.
func runUntil(ctx context.Context, stop <-chan struct{}, run func(context.Context) error) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-stop:
			cancel()
		case <-running.Done():
		}
	})
	err := run(running)
	if running.Err() != nil {
		return nil
	}
	return err
}
