// Package sink has the parts between a request and an audit backend: Batch buffers events,
// Blocking waits for the backend for a limited time, and Truncate limits the size of events.
// The backends are the packages log and webhook.
package sink

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
)

// Modes of writing events to a backend.
const (
	// ModeBatch buffers events and writes them in the background.
	ModeBatch = "batch"
	// ModeBlocking waits for the backend before the request continues or ends.
	ModeBlocking = "blocking"
	// ModeBlockingStrict is ModeBlocking, and requests fail if their first event cannot be written.
	ModeBlockingStrict = "blocking-strict"
)

// Modes returns the modes in the order in which error messages list them.
func Modes() []string { return []string{ModeBatch, ModeBlocking, ModeBlockingStrict} }

var (
	errFull    = errors.New("audit buffer queue blocked")
	errClosed  = errors.New("audit backend shut down")
	errOverdue = errors.New("the audit backend does not answer; the request continues without it")
)

// buffered is the name under which Batch and Blocking report failures.
const buffered = "buffered"

// Backend writes events to a file or a server. It is called concurrently.
type Backend interface {
	// Write writes events and must not change them. It reports whether all were written, and
	// reports errors itself. It stops retrying when ctx is done.
	Write(ctx context.Context, events []*audit.Event) bool
}

// BatchOptions configure a Batch.
type BatchOptions struct {
	// BufferSize is the largest number of waiting events. Further events are dropped.
	BufferSize int
	// MaxBatchSize is the largest number of events in a batch. An incomplete batch is written
	// after MaxBatchWait.
	MaxBatchSize int
	MaxBatchWait time.Duration
	// Throttle limits batches to QPS per second, with bursts of Burst.
	Throttle bool
	QPS      float32
	Burst    int
	// Concurrent allows to write several batches at the same time.
	Concurrent bool
}

// maxConcurrentBatches limits the memory for a backend that hangs: when so many batches are
// being written, the buffer fills and events are dropped.
const maxConcurrentBatches = 32

// Batch buffers events and writes them to a backend in the background. Requests never wait for
// it.
type Batch struct {
	next     Backend
	o        BatchOptions
	report   audit.Report
	throttle *rate.Limiter // nil for none
	slots    chan struct{} // has an element for each batch that is being written

	mu     sync.RWMutex // guards closed; held for reading during sends to buffer
	closed bool
	buffer chan *audit.Event

	done chan struct{} // closed when everything has been written
	ctx  context.Context
	stop context.CancelFunc // makes the backend stop retrying
}

// NewBatch starts a Batch for a backend.
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

// Write implements audit.Sink. It always returns true. It drops and reports events for which
// the buffer has no room.
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

// run writes batches until the buffer is closed and empty.
func (b *Batch) run() {
	defer close(b.done)
	for open := true; open; {
		var events []*audit.Event
		if events, open = b.collect(); len(events) > 0 {
			b.send(events)
		}
	}
	for range cap(b.slots) { // wait for the batches that are being written
		b.slots <- struct{}{}
	}
}

// collect waits for the first event, and then until the batch is full or MaxBatchWait is over.
// It returns false when the buffer is closed.
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

// send writes one batch, as soon as the throttle and the limit of concurrent batches allow.
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

// Blocking waits for the backend, for a limited time. After a timeout it does not wait for the
// backend again until the backend has written something; otherwise each request would lose
// that time.
type Blocking struct {
	next   Backend
	strict bool
	budget time.Duration
	report audit.Report

	overdue atomic.Bool
	pending chan struct{} // has an element for each write in progress
}

// maxPending limits the writes that wait for a backend that hangs.
const maxPending = 10000

// NewBlocking returns a Blocking for a backend. budget is the longest time to wait. If strict
// is true, Write returns false if the events were not written within that time.
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
