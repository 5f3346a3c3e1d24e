// Package background runs the work that goes on beside requests: controllers, and what
// follows files. A Group gives each runner a name, starts it again after it failed, says
// how it is, and waits for all of them when the server stops.
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
)

const (
	// A runner that failed is started again after firstDelay, and after twice as long
	// each time that it fails again, up to longestDelay.
	firstDelay   = time.Second
	longestDelay = time.Minute
	// provedAfter is how long a runner has to run for its failures before to be
	// forgotten.
	provedAfter = 2 * longestDelay
)

// A Runner works until ctx ends, or until there is nothing left to do for it: then it
// returns nil and is not started again. After an error or a panic it is started again,
// so it has to begin with what it finds.
type Runner func(ctx context.Context) error

// Forever is the Runner of a function that has no errors of its own.
func Forever(run func(ctx context.Context)) Runner {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// Group is a set of runners that end together. Its methods may be called concurrently.
type Group struct {
	log *slog.Logger
	ctx context.Context
	end context.CancelFunc
	// after returns a channel that receives after a delay; tests have another one.
	after func(time.Duration) <-chan time.Time
	now   func() time.Time

	mu      sync.Mutex // guards what follows
	runners []*runner
	stopped bool
}

// New returns a group without runners.
func New(log *slog.Logger) *Group {
	g := &Group{log: log, after: time.After, now: time.Now}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g
}

// runner is one of a group.
type runner struct {
	name string
	run  Runner
	done chan struct{} // closed when it will not run any more

	mu     sync.Mutex // guards failed
	failed error      // why it waits to be started again, nil while it runs
}

// Context ends when the group is stopped.
func (g *Group) Context() context.Context { return g.ctx }

// Go starts a runner. The name is for people: it is in the log and in the answers of
// Healthy. No two runners of a group have the same. A group that was stopped starts
// nothing.
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
	go g.keep(r)
}

// keep runs r again and again until it is done or the group is stopped.
func (g *Group) keep(r *runner) {
	defer close(r.done)
	for delay := firstDelay; ; delay = min(2*delay, longestDelay) {
		began := g.now()
		err := r.once(g.ctx)
		if err == nil || g.ctx.Err() != nil {
			return
		}
		if g.now().Sub(began) >= provedAfter {
			delay = firstDelay
		}
		r.set(err)
		g.log.Error("background work failed and will be started again", "name", r.name, "error", err, "in", delay)
		select {
		case <-g.ctx.Done():
			return
		case <-g.after(delay):
		}
		r.set(nil)
	}
}

// PanicError is the error of a runner that panicked.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// once runs r, and returns a panic of it as an error.
func (r *runner) once(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, string(debug.Stack())}
		}
	}()
	return r.run(ctx)
}

func (r *runner) set(failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = failed
}

func (r *runner) health() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		return nil
	}
	return fmt.Errorf("%s failed and waits to be started again: %w", r.name, r.failed)
}

// Healthy returns an error for each of the named runners that failed and waits to be
// started again. One that runs or is done is healthy; one that was never started is not.
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

// Stop ends the context of all runners and waits for them until ctx ends. It logs the
// names of those that still run then; they are left to end with the process. It may be
// called again, and waits again.
func (g *Group) Stop(ctx context.Context) {
	g.mu.Lock()
	g.stopped = true
	runners := g.runners
	g.mu.Unlock()
	g.end()
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
