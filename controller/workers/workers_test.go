package workers

import (
	"context"
	"errors"
	"strings"
	"testing"
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
