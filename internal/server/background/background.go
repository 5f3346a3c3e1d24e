// Package background runs the work that no request starts: controllers, and the goroutines that follow files. A Group gives
// each runner a name, restarts it after a failure, reports its health, and waits for all runners when the server stops.
package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/activity"
)

const (
	// A failed runner is started again after firstDelay. The delay doubles with each further failure, up to maxDelay.
	firstDelay = time.Second
	maxDelay   = time.Minute
	// resetDelayAfter is the time after which a runner counts as stable: the delay after its next failure is firstDelay
	// again.
	resetDelayAfter = 2 * maxDelay
)

// A Runner works until ctx ends or until its work is done, and then returns nil; it is not started again. After an
// error or a panic it is started again, so it must not depend on the state of its previous run.
type Runner func(ctx context.Context) error

// Forever returns a Runner for a function that returns no error.
func Forever(run func(ctx context.Context)) Runner {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// Group is a set of runners that end together. Its methods may be called concurrently.
type Group struct {
	// Activity records which runners have something to do.
	Activity *activity.Tracker

	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	// after is time.After, except in tests.
	after func(time.Duration) <-chan time.Time
	now   func() time.Time

	mu      sync.Mutex // guards runners and stopped
	runners []*runner
	stopped bool
}

// New returns a group without runners. The caller must call Stop.
func New(log *slog.Logger) *Group {
	g := &Group{Activity: activity.New(), log: log, after: time.After, now: time.Now}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// runner is one runner of a group.
type runner struct {
	name string
	run  Runner
	done chan struct{} // closed when the runner will not run again

	mu     sync.Mutex // guards failed
	failed error      // why the runner waits for its restart, nil while it runs
}

// Context returns a context that ends when the group is stopped.
func (g *Group) Context() context.Context { return g.ctx }

// Go starts a runner. The name must be unique in the group; it appears in the log and in the errors of Healthy. A
// stopped group starts nothing.
func (g *Group) Go(name string, run Runner) {
	r := &runner{name: name, run: run, done: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	for _, other := range g.runners {
		if other.name == name {
			panic("background: two runners are called " + name)
		}
	}
	g.runners = append(g.runners, r)
	go g.supervise(r)
}

// supervise runs r, and restarts it after failures, until it is done or the group is stopped.
func (g *Group) supervise(r *runner) {
	defer close(r.done)
	for delay := firstDelay; ; delay = min(2*delay, maxDelay) {
		began := g.now()
		err := r.runOnce(g.ctx)
		if err == nil || g.ctx.Err() != nil {
			return
		}
		if g.now().Sub(began) >= resetDelayAfter {
			delay = firstDelay
		}
		r.setFailure(err)
		g.log.Error("background work failed and will be started again", "name", r.name, "error", err, "in", delay)
		select {
		case <-g.ctx.Done():
			return
		case <-g.after(delay):
		}
		r.setFailure(nil)
	}
}

// runOnce runs r, and returns a panic as an error.
func (r *runner) runOnce(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	return r.run(ctx)
}

func (r *runner) setFailure(failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = failed
}

// health returns an error while the runner waits for its restart.
func (r *runner) health() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		return nil
	}
	return fmt.Errorf("%s failed and waits to be started again: %w", r.name, r.failed)
}

// Healthy returns an error for each named runner that failed and waits for its restart, and for each that was never
// started. A runner that runs or is done is healthy.
func (g *Group) Healthy(names ...string) error {
	var errs []error
	for _, name := range names {
		r := g.find(name)
		if r == nil {
			errs = append(errs, fmt.Errorf("%s was not started", name))
			continue
		}
		errs = append(errs, r.health())
	}
	return errors.Join(errs...)
}

// AllHealthy calls Healthy for all runners whose names begin with a prefix. It fails if there are none.
func (g *Group) AllHealthy(prefix string) error {
	g.mu.Lock()
	var names []string
	for _, r := range g.runners {
		if strings.HasPrefix(r.name, prefix) {
			names = append(names, r.name)
		}
	}
	g.mu.Unlock()
	if names == nil {
		return fmt.Errorf("nothing whose name begins with %q was started", prefix)
	}
	return g.Healthy(names...)
}

func (g *Group) find(name string) *runner {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.runners {
		if r.name == name {
			return r
		}
	}
	return nil
}

// Stop ends the context of all runners and waits for them until ctx ends. Then it logs the names of the runners that
// still run; they end with the process. Stop may be called again, and then waits again.
func (g *Group) Stop(ctx context.Context) {
	g.mu.Lock()
	g.stopped = true
	runners := g.runners
	g.mu.Unlock()
	g.cancel()
	var late []string
	for _, r := range runners {
		select {
		case <-r.done:
			continue
		default:
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			late = append(late, r.name)
		}
	}
	if late != nil {
		g.log.Warn("background work did not end in time", "names", strings.Join(late, ", "))
	}
}

// Sleep waits for d. It returns the error of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
