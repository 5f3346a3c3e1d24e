package etcd

import (
	"context"
	"sync"
)

// rounds shares reads of the current revision. A read answers those who asked
// before it began: what was committed before they asked, it sees. With x/sync's singleflight
// a caller could get the result of a read that began before the call.
type rounds struct {
	read func() (int64, error)

	mu      sync.Mutex // guards what follows
	next    *round     // begins when the one under way has ended
	running bool
}

type round struct {
	done     chan struct{} // closed when what follows is set
	revision int64
	err      error
}

// get returns the result of a read that begins after the call.
func (r *rounds) get(ctx context.Context) (int64, error) {
	own := r.join()
	select {
	case <-own.done:
		return own.revision, own.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (r *rounds) join() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
		if !r.running {
			r.running = true
			go r.run()
		}
	}
	return r.next
}

func (r *rounds) run() {
	for {
		r.mu.Lock()
		current := r.next
		r.next = nil
		if current == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		current.revision, current.err = r.read()
		close(current.done)
	}
}
