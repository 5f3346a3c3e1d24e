package registry

import (
	"context"
	"sync"

	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// conversions are the calls of a conversion webhook for reads that run now. All watches of a version need the same
// object at the same moment: they share one call, and its error if it fails. The zero value has none. All methods may be
// called concurrently.
type conversions struct {
	mu      sync.Mutex
	running map[*cache.Object]*conversion
}

// A conversion is a running call. done is closed when it ends; the fields below are set before that.
type conversion struct {
	done     chan struct{}
	item     []byte
	err      error
	canceled bool // the request that made the call has ended
}

// share returns the result of convert, or of a call for the same object that was running already. If a call ended because its
// own request ended, its result is not shared: one of the waiting requests calls again. If ctx ends first, share returns its
// error.
func (c *conversions) share(ctx context.Context, o *cache.Object, convert func() ([]byte, error)) ([]byte, error) {
	for {
		call, first := c.join(o)
		if first {
			defer c.end(o, call)
			call.item, call.err = convert()
			call.canceled = ctx.Err() != nil
			return call.item, call.err
		}
		select {
		case <-call.done:
			if !call.canceled {
				return call.item, call.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// join returns the running call for an object and false. If there is none, it returns a new one and true; then the
// caller has to make the call and to end it.
func (c *conversions) join(o *cache.Object) (call *conversion, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call, ok := c.running[o]; ok {
		return call, false
	}
	if c.running == nil {
		c.running = map[*cache.Object]*conversion{}
	}
	call = &conversion{done: make(chan struct{}), canceled: true} // also if convert panics
	c.running[o] = call
	return call, true
}

func (c *conversions) end(o *cache.Object, call *conversion) {
	c.mu.Lock()
	delete(c.running, o)
	c.mu.Unlock()
	close(call.done)
}
