package deadline

import (
	"context"
	"sync/atomic"
)

// maxIdle is how many workers wait for requests at most.
const maxIdle = 32

// workers are goroutines that serve one request after the other. A new goroutine
// would have to grow its stack with each request, which costs more than all else of
// the filter.
type workers struct {
	requests chan *guard
	idle     atomic.Int32
	stopping <-chan struct{} // none waits when it is closed
}

func newWorkers(stopping context.Context) *workers {
	return &workers{requests: make(chan *guard), stopping: stopping.Done()}
}

// serve begins to serve a request.
func (w *workers) serve(g *guard) {
	select {
	case w.requests <- g: // one waits
	default:
		go w.work(g)
	}
}

// work serves a request and those that come while it waits.
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
