package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestFailuresAndPanicsComeBack: an item whose handling fails or panics is handled again. Other items are not
// affected.
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

// endedEarly is a context whose Err reports the end while Done is not closed yet. Every context is in this state
// for a moment.
type endedEarly struct{ context.Context }

func (endedEarly) Err() error { return context.Canceled }

// TestRunCloses: the queue is closed when Run returns, even if Run sees the end of the context before the function
// of AfterFunc. Otherwise the goroutines of the queue would remain.
func TestRunCloses(t *testing.T) {
	q := New[string](Options{FirstDelay: time.Millisecond, MaxDelay: time.Second})
	q.Add("item")
	q.Run(endedEarly{t.Context()}, 1, func(context.Context, string) error { return nil })
	if !q.items.ShuttingDown() {
		t.Error("the queue is open after Run")
	}
}

func TestProtect(t *testing.T) {
	err := Protect(func() error { panic("a mistake") })
	if err == nil || !strings.Contains(err.Error(), "panic: a mistake") || !strings.Contains(err.Error(), "workers_test.go") {
		t.Errorf("the error is %v", err)
	}
}

// TestWorkersEndWhenIdle: at most n workers run at a time. None is left when there was nothing to do for a while.
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

// TestActivity: an item is a task from the time when it is added, even with a delay or after a failure, until it
// was handled. An item that is added for much later is not a task. In the end no task is left.
func TestActivity(t *testing.T) {
	synctest.Test(t, testActivity)
}

func testActivity(t *testing.T) {
	tracker := activity.New()
	part := tracker.Part("queue")
	q := New[string](Options{FirstDelay: time.Millisecond, MaxDelay: time.Second, Activity: part})
	busy := func() bool { return len(tracker.Busy()) > 0 }
	idle := func() {
		t.Helper()
		wait.Seen(t, "the queue to be idle", func() (bool, string) { return !busy(), fmt.Sprint(tracker.Busy()) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tries atomic.Int32
	handling, goOn := make(chan string), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.Run(ctx, 2, func(_ context.Context, item string) error {
			handling <- item
			<-goOn
			if item == "fails" && tries.Add(1) < 3 {
				return errors.New("it fails twice")
			}
			return nil
		})
	}()
	handle := func(want string) {
		t.Helper()
		if item := wait.Receive(t, want+" to be handled", handling); item != want {
			t.Errorf("%q was handled, want %q", item, want)
		}
		if !busy() {
			t.Errorf("idle while %q is handled", want)
		}
	}
	q.AddAfter("later", time.Hour)
	if busy() {
		t.Errorf("an item that comes in an hour: %v", tracker.Busy())
	}
	q.Add("a")
	handle("a")
	q.Add("a") // added again while it is handled
	goOn <- struct{}{}
	handle("a")
	goOn <- struct{}{}
	idle()
	q.AddAfter("b", 20*time.Millisecond)
	if !busy() {
		t.Error("idle although an item comes soon")
	}
	handle("b")
	q.AddAfter("b", 10*time.Millisecond)
	q.AddAfter("b", 5*time.Millisecond)
	time.Sleep(15 * time.Millisecond) // both delays have passed while b is handled
	synctest.Wait()
	goOn <- struct{}{}
	handle("b")
	goOn <- struct{}{}
	idle()
	q.Add("fails")
	for range 3 {
		handle("fails")
		goOn <- struct{}{}
	}
	idle()
	cancel()
	<-ended
}
