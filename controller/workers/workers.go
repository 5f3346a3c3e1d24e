// Package workers has the queue that controllers work on: each item is in it once, failed items come back after a
// delay, and a panic is an error of its item alone.
package workers

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Options configure a Queue.
type Options struct {
	// Name is the name of the queue in metrics.
	Name string
	// An item comes back FirstDelay after its first failure. The delay doubles with each further one, up to MaxDelay.
	FirstDelay, MaxDelay time.Duration
	// Metrics are told what happens to items; nil counts nothing.
	Metrics workqueue.MetricsProvider
}

// Queue is a queue of items. Its methods may be called concurrently.
type Queue[T comparable] struct {
	items workqueue.TypedRateLimitingInterface[T]
}

// New returns a Queue. Run or Close has to be called.
func New[T comparable](o Options) *Queue[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](o.FirstDelay, o.MaxDelay)
	return &Queue[T]{workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{
		Name: o.Name, MetricsProvider: o.Metrics,
	})}
}

// Add adds an item, unless it is in the queue.
func (q *Queue[T]) Add(item T) { q.items.Add(item) }

// AddAfter adds an item after a delay.
func (q *Queue[T]) AddAfter(item T, delay time.Duration) { q.items.AddAfter(item, delay) }

// workerIdle is how long a worker without items waits until it ends. Idle controllers then have no workers, which take
// memory in a program that runs many servers.
const workerIdle = time.Second

// Run handles items, n at a time at most and never one item twice at a time, until ctx ends. Then it closes the queue.
// An item whose handling fails comes back later.
func (q *Queue[T]) Run(ctx context.Context, n int, handle func(ctx context.Context, item T) error) {
	stop := context.AfterFunc(ctx, q.Close)
	defer stop()
	var workers sync.WaitGroup
	defer workers.Wait()
	waiting := make(chan T) // from here to a worker
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

// work is one worker: it handles item and those that follow, until none has come for workerIdle.
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
	defer q.items.Done(item)
	if err := Protect(func() error { return handle(ctx, item) }); err != nil {
		q.items.AddRateLimited(item)
	} else {
		q.items.Forget(item)
	}
}

// Close ends the queue.
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
