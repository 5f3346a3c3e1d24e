package background

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// patience is the longest time for which these tests wait for anything.
const patience = 10 * time.Second

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pause is a delay that a runner waits for until the test lets it pass.
type pause struct {
	delay time.Duration
	pass  func()
}

// newGroup returns a group whose runners send each waiting time to the channel, and continue when the test receives
// it.
func newGroup(t *testing.T) (*Group, *logBuffer, chan pause) {
	t.Helper()
	log, waits := &logBuffer{}, make(chan pause)
	g := New(slog.New(slog.NewTextHandler(log, nil)))
	g.after = func(d time.Duration) <-chan time.Time {
		passed := make(chan time.Time)
		go func() {
			select {
			case waits <- pause{d, func() { close(passed) }}:
			case <-g.ctx.Done():
			}
		}()
		return passed
	}
	t.Cleanup(func() { stopWithin(g, patience) })
	return g, log, waits
}

func stopWithin(g *Group, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	g.Stop(ctx)
}

func TestStopWaits(t *testing.T) {
	g, log, _ := newGroup(t)
	told, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g.Go("slow", func(ctx context.Context) error {
		<-ctx.Done()
		close(told)
		<-goOn
		return ctx.Err()
	})
	go func() {
		stopWithin(g, patience)
		close(ended)
	}()
	wait.Receive(t, "the runner to be told", told)
	select {
	case <-ended:
		t.Fatal("Stop returned before the runner did")
	default:
	}
	close(goOn)
	wait.Receive(t, "Stop", ended)
	if log.String() != "" {
		t.Errorf("it was logged: %s", log)
	}
}

func TestStopNamesWhatDoesNotEnd(t *testing.T) {
	g, log, _ := newGroup(t)
	goOn := make(chan struct{})
	for _, name := range []string{"deaf", "stubborn"} {
		g.Go(name, func(context.Context) error { <-goOn; return nil })
	}
	g.Go("obedient", func(ctx context.Context) error { <-ctx.Done(); return nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // with this context, Stop does not wait for runners that still run
	wait.Until(t, "the obedient runner to end and the others to be named", func() bool {
		g.Stop(ctx)
		return strings.Contains(log.String(), `names="deaf, stubborn"`)
	})
	close(goOn)
}

func TestPanicIsStartedAgain(t *testing.T) {
	g, log, waits := newGroup(t)
	runs := make(chan int)
	n := 0
	g.Go("jumpy", func(ctx context.Context) error {
		n++
		if n <= 3 {
			panic("boom")
		}
		runs <- n
		<-ctx.Done()
		return nil
	})
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		w := wait.Receive(t, "the runner to fail and wait", waits)
		if err := g.Healthy("jumpy"); err == nil || !strings.Contains(err.Error(), "jumpy") ||
			!strings.Contains(err.Error(), "boom") {
			t.Errorf("it is said to be %v", err)
		}
		if w.delay != want {
			t.Errorf("the delay was %v, want %v", w.delay, want)
		}
		w.pass()
	}
	if n := wait.Receive(t, "the runner to run again", runs); n != 4 {
		t.Errorf("%d runs, want 4", n)
	}
	if err := g.Healthy("jumpy"); err != nil {
		t.Errorf("it runs and is said to be %v", err)
	}
	if n := strings.Count(log.String(), "name=jumpy"); n != 3 {
		t.Errorf("%d lines name the runner, want 3:\n%s", n, log)
	}
}

// TestDelays has a runner fail often, then run for long, then fail once more.
func TestDelays(t *testing.T) {
	g, _, waits := newGroup(t)
	var mu sync.Mutex // guards clock
	clock := time.Unix(1000, 0)
	g.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return clock
	}
	n := 0
	g.Go("failing", func(context.Context) error {
		n++
		if n == 9 {
			mu.Lock()
			clock = clock.Add(resetDelayAfter)
			mu.Unlock()
		}
		return errors.New("no luck")
	})
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60, 1, 2} {
		w := wait.Receive(t, "the runner to fail and wait", waits)
		if w.delay != time.Duration(seconds)*time.Second {
			t.Errorf("delay %d is %v, want %d s", i, w.delay, seconds)
		}
		w.pass()
	}
}

func TestDone(t *testing.T) {
	g, log, _ := newGroup(t)
	ran := make(chan struct{})
	g.Go("once", Forever(func(context.Context) { close(ran) }))
	wait.Receive(t, "the runner", ran)
	wait.Receive(t, "the runner to be done", g.find("once").done)
	if err := g.Healthy("once"); err != nil {
		t.Errorf("what is done is said to be %v", err)
	}
	if err := g.Healthy("once", "never"); err == nil || !strings.Contains(err.Error(), "never was not started") {
		t.Errorf("what was not started is said to be %v", err)
	}
	stopWithin(g, patience)
	g.Go("too late", Forever(func(context.Context) { t.Error("a stopped group started a runner") }))
	if log.String() != "" {
		t.Errorf("it was logged: %s", log)
	}
}

func TestNamesAreUnique(t *testing.T) {
	g, _, _ := newGroup(t)
	g.Go("one", Forever(func(context.Context) {}))
	defer func() {
		if recover() == nil {
			t.Error("two runners have the same name")
		}
	}()
	g.Go("one", Forever(func(context.Context) {}))
}
