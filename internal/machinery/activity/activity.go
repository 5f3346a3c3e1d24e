// Package activity records which parts of a server, such as its controllers, have something to do, so that a test
// can wait until all are idle.
package activity

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Tracker has the parts of one server. Its methods may be called concurrently.
type Tracker struct {
	changes atomic.Uint64
	mu      sync.Mutex // guards parts
	parts   []*Part
}

// New returns a Tracker without parts.
func New() *Tracker { return &Tracker{} }

// Part adds a part that is idle at first. name is its name in the lines of Busy. A nil Tracker returns a nil Part.
func (t *Tracker) Part(name string) *Part {
	if t == nil {
		return nil
	}
	p := &Part{tracker: t, name: name}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts = append(t.parts, p)
	return p
}

// Changes returns a number that grows whenever a part gets something to do. If Busy finds all parts idle, and
// Changes returns the same number before and after that, then all of them were idle at the same time.
func (t *Tracker) Changes() uint64 { return t.changes.Load() }

// Busy returns descriptions of the pending work, one line for each part that is not idle.
func (t *Tracker) Busy() (lines []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		if line := p.busy(); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Part is a part of a server. Its methods may be called concurrently. A nil Part records nothing.
type Part struct {
	tracker *Tracker
	name    string

	mu       sync.Mutex // guards what follows
	starting bool
	tasks    int
	pending  func() bool
}

// Starting notes that the part will look for work. The part must call Started afterwards.
func (p *Part) Starting() {
	p.change(true, func() { p.starting = true })
}

// Started notes that the part has found the work that existed at its start. The part must call Add for this work
// before it calls Started; otherwise it would look idle in between.
func (p *Part) Started() {
	p.change(false, func() { p.starting = false })
}

// Stopped notes that the part was stopped and has nothing to do. Starting may be called again.
func (p *Part) Stopped() {
	p.change(false, func() { p.starting, p.tasks, p.pending = false, 0, nil })
}

// Add adds n tasks, or removes some if n is negative.
func (p *Part) Add(n int) {
	p.change(n > 0, func() { p.tasks = max(p.tasks+n, 0) })
}

// Set sets the number of tasks.
func (p *Part) Set(n int) {
	p.change(n > 0, func() { p.tasks = n })
}

// Pending sets a function that reports whether there are more tasks than were added. It must not call methods of p.
func (p *Part) Pending(f func() bool) {
	p.change(true, func() { p.pending = f })
}

// change calls the function change with p.mu held. more means that the part may have got something to do; then
// Tracker.Changes grows.
func (p *Part) change(more bool, change func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if more {
		p.tracker.changes.Add(1)
	}
}

// busy returns a description of the part's pending work, "" if there is none.
func (p *Part) busy() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.starting:
		return p.name + " is starting"
	case p.tasks > 0:
		return fmt.Sprintf("%s has %d tasks", p.name, p.tasks)
	case p.pending != nil && p.pending():
		return p.name + " has tasks"
	}
	return ""
}
