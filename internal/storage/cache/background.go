package cache

import (
	"context"
	"sync"
	"time"
)

// background contains the goroutines of a cache.
type background struct {
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu    sync.RWMutex // held for writing while ctx is cancelled, so that no task is added after that
	tasks sync.WaitGroup
}

// spawn runs f on a goroutine that Close waits for. It returns false if the cache is closed.
func (b *background) spawn(f func()) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.tasks.Go(f)
	return true
}

// stop makes spawn return false from now on, and cancels ctx. It does not wait for the goroutines.
func (b *background) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel()
}

// pause waits for d. It returns false if the cache is closed before.
func (b *background) pause(d time.Duration) bool {
	select {
	case <-b.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
