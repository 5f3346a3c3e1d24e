package etcd

import (
	"context"
	"sync"
)

// sharedReads shares reads of the current revision between callers. A read only serves callers that called get
// before it began, so that its result includes everything that was committed before their calls. (With x/sync's
// singleflight a caller could get the result of a read that began before the call.)
//
// Example: A calls, and a read begins. B and C call during it: they wait for the next read, which begins when the first
// one has ended and answers both.
type sharedReads struct {
	read func() (int64, error)

	mu      sync.Mutex  // guards the fields below
	next    *sharedRead // the next read; it begins when the current one has ended
	running bool
}

// sharedRead is one read and its result.
type sharedRead struct {
	done     chan struct{} // closed when the fields below are set
	revision int64
	err      error
}

// get returns the result of a read that begins after the call.
func (r *sharedReads) get(ctx context.Context) (int64, error) {
	own := r.join()
	select {
	case <-own.done:
		return own.revision, own.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// join returns the next read, and starts the goroutine that runs reads if it is not running.
func (r *sharedReads) join() *sharedRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &sharedRead{done: make(chan struct{})}
		if !r.running {
			r.running = true
			go r.run()
		}
	}
	return r.next
}

// run runs reads until no caller waits for one.
func (r *sharedReads) run() {
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
