package embedded

import (
	"context"
	"sync"

	"github.com/keelson-dev/keelson/internal/storage"
)

// lifetime makes Close wait until no call and no goroutine uses the database.
type lifetime struct {
	// mu is held for reading by every method that uses the database, and for writing by Close, which sets closed.
	mu     sync.RWMutex
	closed bool

	stopped    context.Context // done when Close begins
	stop       context.CancelFunc
	background sync.WaitGroup // the goroutines of maintenance and of the reclaimer
	closeOnce  sync.Once
	closeErr   error // result of the first Close
}

// newLifetime returns the lifetime of a store that is being opened.
func newLifetime() *lifetime {
	l := new(lifetime)
	l.stopped, l.stop = context.WithCancel(context.Background())
	return l
}

// enter must be called before a method uses the database. If it returns nil, the database stays open until leave is
// called. It fails with ErrClosed after Close, and with the error of ctx.
func (l *lifetime) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		return storage.ErrClosed
	}
	return nil
}

// leave ends a method that began with enter.
func (l *lifetime) leave() { l.mu.RUnlock() }
