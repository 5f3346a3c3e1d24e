package workers

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailuresAndPanicsComeBack: an item that fails, and one whose handling panics, are handled again; others go on.
func TestFailuresAndPanicsComeBack(t *testing.T) {
	q := New[string](Options{FirstDelay: time.Millisecond, MaxDelay: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	done, handled := make(chan struct{}), make(chan string, 8)
	tries := map[string]int{}
	go func() {
		defer close(done)
		q.Run(ctx, 1, func(_ context.Context, item string) error {
			tries[item]++
			switch {
			case item == "panics" && tries[item] == 1:
				panic("a mistake")
			case item == "fails" && tries[item] == 1:
				return errors.New("a failure")
			}
			handled <- item
			return nil
		})
	}()
	for _, item := range []string{"panics", "fails", "works"} {
		q.Add(item)
	}
	seen := map[string]bool{}
	for len(seen) < 3 {
		select {
		case item := <-handled:
			seen[item] = true
		case <-time.After(10 * time.Second):
			t.Fatalf("waited 10 s; only %v were handled", seen)
		}
	}
	cancel()
	<-done
}

func TestProtect(t *testing.T) {
	err := Protect(func() error { panic("a mistake") })
	if err == nil || !strings.Contains(err.Error(), "panic: a mistake") || !strings.Contains(err.Error(), "workers_test.go") {
		t.Errorf("the error is %v", err)
	}
}

// TestWorkersEndWhenIdle: at most n workers run at a time, and none when there was nothing to do for a while.
func TestWorkersEndWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](Options{FirstDelay: time.Millisecond, MaxDelay: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		var running, most, handled atomic.Int64
		var done sync.WaitGroup
		const n, items = 3, 20
		done.Go(func() {
			q.Run(ctx, n, func(context.Context, int) error {
				if now := running.Add(1); now > most.Load() {
					most.Store(now)
				}
				time.Sleep(time.Minute)
				running.Add(-1)
				handled.Add(1)
				return nil
			})
		})
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 2 {
			for i := range items {
				q.Add(i)
			}
			time.Sleep(items * time.Minute)
			synctest.Wait()
			if now := runtime.NumGoroutine(); now != before {
				t.Errorf("there are %d goroutines, and there were %d before the first item", now, before)
			}
		}
		if most.Load() != n || handled.Load() != 2*items {
			t.Errorf("at most %d workers have run, and handled %d items", most.Load(), handled.Load())
		}
		cancel()
		done.Wait()
	})
}
