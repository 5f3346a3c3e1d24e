package deadline

import (
	"context"
	"sync/atomic"
)

// maxIdle limits the number of idle workers.
const maxIdle = 32

// workers are goroutines that call handlers, one after the other. Starting a goroutine for
// each request would cost more than the rest of this filter, because each would have to grow
// its stack.
type workers struct {
	requests chan *guard
	idle     atomic.Int32
	stopping <-chan struct{} // idle workers return when it is closed
}

func newWorkers(stopping context.Context) *workers {
	return &workers{requests: make(chan *guard), stopping: stopping.Done()}
}

// serve gives g to an idle worker, or to a new one.
func (w *workers) serve(g *guard) {
	select {
	case w.requests <- g: // an idle worker took it
	default:
		go w.work(g)
	}
}

// work runs g and then the requests that arrive while the worker is idle.
func (w *workers) work(g *guard) {
	for {
		g.run()
		if w.idle.Add(1) > maxIdle {
			w.idle.Add(-1)
			return
		}
		select {
		case g = <-w.requests:
			w.idle.Add(-1)
		case <-w.stopping:
			return
		}
	}
}
