package embedded

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// These constants limit one group of requests that the builder takes from the queue.
const (
	groupRequests = 1024
	groupBytes    = 4 << 20
)

// request is one transaction in the pipeline.
type request struct {
	txn   storage.Txn
	given *given // nil for a transaction of this store
	size  int

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

// answer sets the result and wakes the caller of Commit. It must be called once.
func (r *request) answer(revision int64, err error) {
	r.revision, r.err = revision, err
	r.done <- struct{}{}
}

// abandon removes the request from the queue. It returns false if the builder has taken the request already; the
// transaction may then take effect.
func (r *request) abandon() bool {
	return r.state.CompareAndSwap(requestQueued, requestAbandoned)
}

// answer is the result of a request. It is sent when the group of the request is durable.
type answer struct {
	request  *request
	revision int64
	err      error
}

// group is a set of transactions that one batch makes durable.
type group struct {
	answers []answer
	records []*record // one per revision, in order; empty if nothing changed
	batch   batch     // nil if nothing changed
	begun   time.Time // when its planning began
}

// batch is a set of writes to the database, which become durable together.
type batch interface {
	// apply writes the batch to the log and does not wait for the sync. Batches are in the log in the order of the
	// calls.
	apply() error
	// wait waits until the batch is durable. It returns an error if that failed.
	wait() error
}

// pipelineEnv contains the functions of the store that a pipeline calls.
type pipelineEnv struct {
	// plan returns a group for requests. If an answer depends only on durable state, it sends the answer at once.
	// The builder goroutine calls it.
	plan func([]*request) *group
	// confirm is called with each durable group that has changed something, before publish. If it returns an error, the pipeline fails.
	// It may be nil.
	confirm func(*group) error
	// publish makes the changes of a durable group visible to readers and watchers. The syncer goroutine calls it.
	publish func(*group)
	// durable is called with each group that has changed something, after publish.
	durable func(*group)
	// failed is called with the first error, once.
	failed func(error)
}

// pipeline is the group commit in two stages that the package comment describes. It is independent of keys and of
// Pebble.
type pipeline struct {
	env pipelineEnv

	mu     sync.Mutex // guards queue and closed
	queue  []*request
	closed bool

	wake    chan struct{} // capacity 1; receives when queue or closed has changed
	syncing chan *group   // from builder to syncer; unbuffered, so that at most two groups are in flight
	ended   chan struct{} // closed when both goroutines have ended

	failure atomic.Pointer[error] // the first failure as an ErrFailed
}

// newPipeline starts the two goroutines of a pipeline. The caller must call close.
func newPipeline(env pipelineEnv) *pipeline {
	p := &pipeline{
		env:     env,
		wake:    make(chan struct{}, 1),
		syncing: make(chan *group),
		ended:   make(chan struct{}),
	}
	go p.buildGroups()
	go p.syncGroups()
	return p
}

// submit adds requests to the queue. It returns ErrClosed after close and ErrFailed after a failure. In both cases
// the requests get no answer.
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

// signal wakes the builder.
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

// fail records err as the failure of the pipeline, if it is the first one, and returns the recorded failure.
func (p *pipeline) fail(err error) error {
	wrapped := fmt.Errorf("%w: %v", storage.ErrFailed, err)
	if p.failure.CompareAndSwap(nil, &wrapped) {
		p.env.failed(wrapped)
	}
	return *p.failure.Load()
}

// take waits for requests and returns the next group of them. It reuses the memory of into. It returns nil when
// the pipeline is closed and the queue is empty.
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
			continue // all of them were abandoned
		}
		if closed {
			return nil
		}
		<-p.wake
	}
}

// buildGroups is the builder goroutine: it plans groups, applies their batches and passes them to the syncer.
func (p *pipeline) buildGroups() {
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
		begun := time.Now()
		g := p.env.plan(requests)
		g.begun = begun
		if g.batch != nil {
			if err := g.batch.apply(); err != nil {
				err = p.fail(err)
				g.answerAll(err)
				continue
			}
		}
		if len(g.answers) > 0 {
			p.syncing <- g
		}
	}
}

// syncGroups is the syncer goroutine: it waits until groups are durable, publishes them and answers their requests.
func (p *pipeline) syncGroups() {
	defer close(p.ended)
	for g := range p.syncing {
		if err := p.waitDurable(g); err != nil {
			g.answerAll(err)
			continue
		}
		if len(g.records) > 0 {
			p.env.publish(g)
			p.env.durable(g)
		}
		for _, a := range g.answers {
			a.request.answer(a.revision, a.err)
		}
	}
}

// waitDurable waits until g and all groups before it are durable.
func (p *pipeline) waitDurable(g *group) error {
	if g.batch != nil {
		if err := g.batch.wait(); err != nil {
			return p.fail(err)
		}
	}
	if p.env.confirm != nil && len(g.records) > 0 {
		if err := p.env.confirm(g); err != nil {
			return p.fail(err)
		}
	}
	// An earlier group may have failed although this one was synced. The answers of this group depend on the changes of
	// the earlier one, which are lost.
	if err := p.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// answerAll answers all requests of g with err.
func (g *group) answerAll(err error) {
	for _, a := range g.answers {
		a.request.answer(0, err)
	}
}
