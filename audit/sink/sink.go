// Package sink has what stands between a request and a backend of audit events:
// buffering, waiting within a budget, and truncating. The backends are log and
// webhook, a folder each.
package sink

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/keelson-dev/keelson/audit"
)

// Modes of handing events to a backend.
const (
	// ModeBatch buffers events and hands them on in the background.
	ModeBatch = "batch"
	// ModeBlocking waits for the backend before the request goes on or is answered.
	ModeBlocking = "blocking"
	// ModeBlockingStrict fails requests whose first event the backend did not take.
	ModeBlockingStrict = "blocking-strict"
)

// Modes returns the modes in the order in which messages list them.
func Modes() []string { return []string{ModeBatch, ModeBlocking, ModeBlockingStrict} }

var (
	errFull    = errors.New("audit buffer queue blocked")
	errClosed  = errors.New("audit backend shut down")
	errOverdue = errors.New("the audit backend does not answer; the request goes on without it")
)

// buffered is how failures of a Batch or a Blocking are reported.
const buffered = "buffered"

// Backend is where events end: a file or a server. It is called concurrently.
type Backend interface {
	// Write hands on events, which it does not change, and says whether all were
	// taken. It reports failures itself. ctx bounds attempts to repeat it.
	Write(ctx context.Context, events []*audit.Event) bool
}

// BatchOptions say how a Batch collects.
type BatchOptions struct {
	// BufferSize is how many events wait at most; more are dropped.
	BufferSize int
	// MaxBatchSize is how many events are handed on at once, after MaxBatchWait at
	// the latest.
	MaxBatchSize int
	MaxBatchWait time.Duration
	// Throttle bounds the batches a second to QPS, after a first Burst.
	Throttle bool
	QPS      float32
	Burst    int
	// Concurrent hands batches on without waiting for those before.
	Concurrent bool
}

// maxConcurrentBatches bounds what a backend that hangs keeps in memory: then the
// buffer fills and events are dropped.
const maxConcurrentBatches = 32

// Batch buffers events and hands them to a backend in the background. Requests
// never wait for it.
type Batch struct {
	next     Backend
	o        BatchOptions
	report   audit.Report
	throttle *rate.Limiter // nil for none
	slots    chan struct{} // one is taken by each batch on its way

	mu     sync.RWMutex // guards closed against sends to buffer
	closed bool
	buffer chan *audit.Event

	done chan struct{} // closed when everything was handed on
	ctx  context.Context
	stop context.CancelFunc // ends attempts
}

// NewBatch starts a Batch before a backend.
func NewBatch(next Backend, o BatchOptions, report audit.Report) *Batch {
	b := &Batch{
		next: next, o: o, report: report, slots: make(chan struct{}, 1),
		buffer: make(chan *audit.Event, o.BufferSize), done: make(chan struct{}),
	}
	if o.Concurrent {
		b.slots = make(chan struct{}, maxConcurrentBatches)
	}
	if o.Throttle {
		b.throttle = rate.NewLimiter(rate.Limit(o.QPS), o.Burst)
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	go b.run()
	return b
}

// Write implements audit.Sink. What the buffer has no room for is dropped and
// reported; the request goes on in any case.
func (b *Batch) Write(_ context.Context, events []*audit.Event) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		b.report(buffered, errClosed, events)
		return true
	}
	for i, e := range events {
		select {
		case b.buffer <- e:
		default:
			b.report(buffered, errFull, events[i:])
			return true
		}
	}
	return true
}

// Close implements audit.Sink.
func (b *Batch) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.buffer)
	}
	b.mu.Unlock()
	defer b.stop()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run hands on batches until the buffer is closed and empty.
func (b *Batch) run() {
	defer close(b.done)
	for open := true; open; {
		var events []*audit.Event
		if events, open = b.collect(); len(events) > 0 {
			b.send(events)
		}
	}
	for range cap(b.slots) { // those on their way
		b.slots <- struct{}{}
	}
}

// collect waits for the first event, and then for a full batch or the end of its
// time. It says false when the buffer is closed.
func (b *Batch) collect() (events []*audit.Event, open bool) {
	first, open := <-b.buffer
	if !open {
		return nil, false
	}
	events = append(events, first)
	if b.o.MaxBatchSize <= 1 {
		return events, true
	}
	timer := time.NewTimer(b.o.MaxBatchWait)
	defer timer.Stop()
	for len(events) < b.o.MaxBatchSize {
		select {
		case e, open := <-b.buffer:
			if !open {
				return events, false
			}
			events = append(events, e)
		case <-timer.C:
			return events, true
		}
	}
	return events, true
}

// send hands on one batch when the throttle and those on their way let it.
func (b *Batch) send(events []*audit.Event) {
	if b.throttle != nil {
		if err := b.throttle.Wait(b.ctx); err != nil {
			b.report(buffered, errClosed, events)
			return
		}
	}
	select {
	case b.slots <- struct{}{}:
	case <-b.ctx.Done():
		b.report(buffered, errClosed, events)
		return
	}
	write := func() {
		defer func() { <-b.slots }()
		b.next.Write(b.ctx, events)
	}
	if b.o.Concurrent {
		go write()
		return
	}
	write()
}

// Blocking waits for the backend, up to a budget. A backend that used it up is not
// waited for again until it took something: each request would lose that time.
type Blocking struct {
	next   Backend
	strict bool
	budget time.Duration
	report audit.Report

	overdue atomic.Bool
	pending chan struct{} // one is taken by each write on its way
}

// maxPending bounds the writes that a backend which hangs keeps in memory.
const maxPending = 10000

// NewBlocking returns a Blocking before a backend. strict says false of events
// that were not taken within the budget; otherwise requests go on without.
func NewBlocking(next Backend, strict bool, budget time.Duration, report audit.Report) *Blocking {
	return &Blocking{next: next, strict: strict, budget: budget, report: report, pending: make(chan struct{}, maxPending)}
}

// Write implements audit.Sink.
func (b *Blocking) Write(ctx context.Context, events []*audit.Event) bool {
	return b.write(ctx, events) || !b.strict
}

func (b *Blocking) write(ctx context.Context, events []*audit.Event) bool {
	select {
	case b.pending <- struct{}{}:
	default:
		b.report(buffered, errFull, events)
		return false
	}
	taken := make(chan bool, 1)
	go func() {
		defer func() { <-b.pending }()
		ok := b.next.Write(context.WithoutCancel(ctx), events)
		if ok {
			b.overdue.Store(false)
		}
		taken <- ok
	}()
	if b.overdue.Load() {
		select {
		case ok := <-taken:
			return ok
		default:
			return false
		}
	}
	timer := time.NewTimer(b.budget)
	defer timer.Stop()
	select {
	case ok := <-taken:
		return ok
	case <-timer.C:
		if b.overdue.CompareAndSwap(false, true) {
			b.report(buffered, errOverdue, nil)
		}
	case <-ctx.Done():
	}
	return false
}

// Close implements audit.Sink.
func (b *Blocking) Close(ctx context.Context) error {
	for range maxPending {
		select {
		case b.pending <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
