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

// Run handles items, n at a time and never one item twice at a time, until ctx ends. Then it closes the queue. An item
// whose handling fails comes back later.
func (q *Queue[T]) Run(ctx context.Context, n int, handle func(ctx context.Context, item T) error) {
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for q.next(ctx, handle) {
			}
		})
	}
	<-ctx.Done()
	q.Close()
	workers.Wait()
}

// next handles one item. It returns false if the queue is closed.
func (q *Queue[T]) next(ctx context.Context, handle func(context.Context, T) error) bool {
	item, closed := q.items.Get()
	if closed || ctx.Err() != nil {
		return false
	}
	defer q.items.Done(item)
	if err := Protect(func() error { return handle(ctx, item) }); err != nil {
		q.items.AddRateLimited(item)
	} else {
		q.items.Forget(item)
	}
	return true
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
