package embedded

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/keelson-dev/keelson/storage"
)

// Bounds of one group: what the builder takes from the queue at once.
const (
	groupRequests = 1024
	groupBytes    = 4 << 20
)

// request is one transaction on its way through the pipeline.
type request struct {
	txn  storage.Txn
	size int

	state    atomic.Int32 // queued, taken or abandoned
	revision int64
	err      error
	done     chan struct{} // capacity 1; receives when revision and err are set
}

const (
	requestQueued = iota
	requestTaken
	requestAbandoned
)

func newRequest(txn storage.Txn) *request {
	return &request{txn: txn, size: txnSize(txn), done: make(chan struct{}, 1)}
}

func (r *request) answer(revision int64, err error) {
	r.revision, r.err = revision, err
	r.done <- struct{}{}
}

// abandon takes the request back if the builder has not taken it yet.
func (r *request) abandon() bool {
	return r.state.CompareAndSwap(requestQueued, requestAbandoned)
}

// answer is a request's outcome that becomes true when its group is durable.
type answer struct {
	request  *request
	revision int64
	err      error
}

// group is what one batch carries through the pipeline.
type group struct {
	answers []answer
	records []*record // one a revision, in order; empty if nothing changed
	batch   batch     // nil if nothing changed
}

// batch is a unit of work of the log below: applied at once, durable as a whole.
type batch interface {
	// apply hands the batch to the log, in order, without waiting for the sync.
	apply() error
	// wait blocks until the batch is durable, or can never be.
	wait() error
}

// pipelineEnv is what the pipeline needs from its store.
type pipelineEnv struct {
	// plan turns requests into a group, answering those at once whose answer
	// rests on durable state alone. The builder goroutine calls it.
	plan func([]*request) *group
	// publish makes a durable group visible. The syncer goroutine calls it.
	publish func(*group)
	// failed is told the first error; it must make the store refuse writes.
	failed func(error)
}

// pipeline is the two-stage group commit described in the package comment. It
// knows nothing of keys or of Pebble.
type pipeline struct {
	env pipelineEnv

	mu     sync.Mutex // guards queue and closed
	queue  []*request
	closed bool

	wake    chan struct{} // capacity 1: queue or closed changed
	syncing chan *group   // builder to syncer; unbuffered, so at most two in flight
	ended   chan struct{} // closed when both goroutines are gone

	failure atomic.Pointer[error] // the first failure, wrapped in ErrFailed
}

func newPipeline(env pipelineEnv) *pipeline {
	p := &pipeline{
		env:     env,
		wake:    make(chan struct{}, 1),
		syncing: make(chan *group),
		ended:   make(chan struct{}),
	}
	go p.build()
	go p.sync()
	return p
}

// submit queues requests. It returns ErrClosed after close, ErrFailed after a
// failure; then none of them is answered.
func (p *pipeline) submit(requests ...*request) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return storage.ErrClosed
	}
	if err := p.failure.Load(); err != nil {
		p.mu.Unlock()
		return *err
	}
	p.queue = append(p.queue, requests...)
	p.mu.Unlock()
	p.signal()
	return nil
}

func (p *pipeline) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close refuses further requests and waits until the queued ones are answered.
func (p *pipeline) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.signal()
	<-p.ended
}

// fail records the first failure; later ones are its consequence.
func (p *pipeline) fail(err error) error {
	wrapped := fmt.Errorf("%w: %v", storage.ErrFailed, err)
	if p.failure.CompareAndSwap(nil, &wrapped) {
		p.env.failed(wrapped)
	}
	return *p.failure.Load()
}

// take waits for requests and returns a group's worth of them; nil when the
// pipeline is closed and its queue empty. The result is valid until the next call.
func (p *pipeline) take(into []*request) []*request {
	into = into[:0]
	for {
		p.mu.Lock()
		size, n := 0, 0
		for n < len(p.queue) && n < groupRequests && (n == 0 || size+p.queue[n].size <= groupBytes) {
			size += p.queue[n].size
			if p.queue[n].state.CompareAndSwap(requestQueued, requestTaken) {
				into = append(into, p.queue[n])
			}
			n++
		}
		rest := copy(p.queue, p.queue[n:])
		clear(p.queue[rest:])
		p.queue = p.queue[:rest]
		closed := p.closed
		p.mu.Unlock()
		if len(into) > 0 {
			return into
		}
		if n > 0 {
			continue // only abandoned ones
		}
		if closed {
			return nil
		}
		<-p.wake
	}
}

func (p *pipeline) build() {
	defer close(p.syncing)
	var requests []*request
	for {
		if requests = p.take(requests); requests == nil {
			return
		}
		if err := p.failure.Load(); err != nil {
			for _, r := range requests {
				r.answer(0, *err)
			}
			continue
		}
		g := p.env.plan(requests)
		if g.batch != nil {
			if err := g.batch.apply(); err != nil {
				err = p.fail(err)
				g.reject(err)
				continue
			}
		}
		if len(g.answers) > 0 {
			p.syncing <- g
		}
	}
}

func (p *pipeline) sync() {
	defer close(p.ended)
	for g := range p.syncing {
		if err := p.settle(g); err != nil {
			g.reject(err)
			continue
		}
		if len(g.records) > 0 {
			p.env.publish(g)
		}
		for _, a := range g.answers {
			a.request.answer(a.revision, a.err)
		}
	}
}

// settle waits until g and all before it are durable.
func (p *pipeline) settle(g *group) error {
	if g.batch != nil {
		if err := g.batch.wait(); err != nil {
			return p.fail(err)
		}
	}
	// An earlier group may have failed although this one was synced: its
	// answers would rest on what was lost.
	if err := p.failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (g *group) reject(err error) {
	for _, a := range g.answers {
		a.request.answer(0, err)
	}
}
