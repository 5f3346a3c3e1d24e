// Package workers has the queue that controllers work on. An item is in the queue at most once. A failed item
// comes back after a delay, and a panic in the handling of an item counts as its failure and does not affect
// others.
package workers

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/machinery/activity"
)

// Options configure a Queue.
type Options struct {
	// Name is the name of the queue in metrics.
	Name string
	// An item comes back FirstDelay after its first failure. The delay doubles with each further one, up to MaxDelay.
	FirstDelay, MaxDelay time.Duration
	// Metrics are the metrics of the queue; nil counts nothing.
	Metrics workqueue.MetricsProvider
	// Activity, unless nil, has a task for each item that is in the queue, is being handled, or comes back after
	// an error, and for each item of AddAfter with a delay up to soon.
	Activity *activity.Part
}

// Grouped is like New, but groups of items take turns, so that a group with many items does not delay the others.
// group returns the name of an item's group. It must not call methods of the queue.
func Grouped[T comparable](o Options, group func(T) string) *Queue[T] {
	return newQueue(o, newTurns(group))
}

// soon is the largest delay in AddAfter with which an item counts as a task of Options.Activity.
const soon = 10 * time.Second

// Queue is a queue of items. Its methods may be called concurrently.
type Queue[T comparable] struct {
	items    workqueue.TypedRateLimitingInterface[T]
	failures workqueue.TypedRateLimiter[T]
	waiting  *waiting[T]
}

// New returns a Queue. Run or Close has to be called.
func New[T comparable](o Options) *Queue[T] { return newQueue(o, workqueue.DefaultQueue[T]()) }

func newQueue[T comparable](o Options, order workqueue.Queue[T]) *Queue[T] {
	q := &Queue[T]{
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[T](o.FirstDelay, o.MaxDelay),
		waiting:  &waiting[T]{Queue: order, activity: o.Activity},
	}
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: o.Name, MetricsProvider: o.Metrics, Queue: q.waiting,
	})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
		Name: o.Name, MetricsProvider: o.Metrics, Queue: inner,
	})
	q.items = workqueue.NewTypedRateLimitingQueueWithConfig(q.failures, workqueue.TypedRateLimitingQueueConfig[T]{
		Name: o.Name, MetricsProvider: o.Metrics, DelayingQueue: delaying,
	})
	return q
}

// Add adds an item, unless it is in the queue.
func (q *Queue[T]) Add(item T) { q.items.Add(item) }

// AddAfter adds an item after a delay.
func (q *Queue[T]) AddAfter(item T, delay time.Duration) {
	if delay <= soon {
		q.waiting.delay(item, delay)
	}
	q.items.AddAfter(item, delay)
}

// waiting has the items that wait for a worker. It counts the tasks of a queue: one for each item from Push until its
// handling has ended, and one for each item that is delayed.
type waiting[T comparable] struct {
	workqueue.Queue[T]
	activity *activity.Part

	mu sync.Mutex // guards due
	// due has the times at which delayed items will be pushed.
	due map[T]time.Time
}

// Push implements workqueue.Queue.
func (w *waiting[T]) Push(item T) {
	w.activity.Add(1)
	w.arrived(item)
	w.Queue.Push(item)
}

// delay notes that an item will be pushed.
func (w *waiting[T]) delay(item T, delay time.Duration) {
	if w.activity == nil {
		return
	}
	at := time.Now().Add(delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	before, ok := w.due[item]
	if ok && before.Before(at) {
		return // the earlier time counts, as in workqueue
	}
	if w.due == nil {
		w.due = map[T]time.Time{}
	}
	w.due[item] = at
	if !ok {
		w.activity.Add(1)
	}
}

// arrived notes that an item is in the queue or is being handled. If its time has come, it is no longer delayed.
func (w *waiting[T]) arrived(item T) {
	if w.activity == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.due[item]; ok && !time.Now().Before(at) {
		delete(w.due, item)
		w.activity.Add(-1)
	}
}

// workerIdle is the time after which a worker without items ends. So idle controllers have no workers. This saves
// memory in a program that runs many servers.
const workerIdle = time.Second

// Run handles items until ctx ends, at most n at a time and an item never twice at the same time. Then it closes
// the queue. An item whose handling fails comes back later.
func (q *Queue[T]) Run(ctx context.Context, n int, handle func(ctx context.Context, item T) error) {
	defer q.Close() // if Run sees the end of ctx first, stop prevents the call of Close by AfterFunc
	stop := context.AfterFunc(ctx, q.Close)
	defer stop()
	var workers sync.WaitGroup
	defer workers.Wait()
	waiting := make(chan T) // from this function to a worker
	defer close(waiting)
	running := make(chan struct{}, n) // has one element for each worker
	for {
		item, closed := q.items.Get()
		if closed || ctx.Err() != nil {
			return
		}
		select {
		case waiting <- item:
			continue
		default:
		}
		select {
		case waiting <- item:
		case running <- struct{}{}:
			workers.Go(func() {
				defer func() { <-running }()
				q.work(ctx, item, waiting, handle)
			})
		}
	}
}

// work is one worker: it handles item and then further items until none has come for workerIdle.
func (q *Queue[T]) work(ctx context.Context, item T, waiting <-chan T, handle func(context.Context, T) error) {
	idle := time.NewTimer(workerIdle)
	defer idle.Stop()
	for more := true; more; {
		if ctx.Err() == nil {
			q.handle(ctx, item, handle)
		}
		idle.Reset(workerIdle)
		select {
		case item, more = <-waiting:
		case <-idle.C:
			return
		}
	}
}

// handle handles one item.
func (q *Queue[T]) handle(ctx context.Context, item T, handle func(context.Context, T) error) {
	defer q.waiting.activity.Add(-1)
	defer q.items.Done(item)
	q.waiting.arrived(item)
	if err := Protect(func() error { return handle(ctx, item) }); err != nil {
		delay := q.failures.When(item)
		q.waiting.delay(item, delay)
		q.items.AddAfter(item, delay)
	} else {
		q.items.Forget(item)
	}
}

// Close ends the queue. Items that are added later are ignored.
func (q *Queue[T]) Close() { q.items.ShutDown() }

// Protect calls f and returns its error. A panic of f is returned as an error with its stack.
func Protect(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	return f()
}
