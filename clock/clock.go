// Package clock has a clock that a test moves, for the field Testing.Clock of the configuration of a server:
//
//	c := clock.New(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
//	s := keelson.ForTest(t, func(conf *config.Config) { conf.Testing.Clock = c })
//	...
//	c.Advance(time.Hour) // what lives for less than an hour has expired
package clock

import (
	"slices"
	"sync"
	"time"
)

// Clock is a clock that stands still until Advance. A nil *Clock is the clock of the system. Its methods may be called
// concurrently.
type Clock struct {
	mu      sync.Mutex // guards the fields below
	now     time.Time
	waiting []waiter
}

// waiter waits for a time.
type waiter struct {
	until time.Time
	done  chan time.Time // has room for one element
}

// New returns a clock that shows the time start. A clock belongs to one server. The servers that are started from a snapshot
// should each get a clock of their own, which should not show an earlier time than the first server's did.
func New(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Since returns the time that has passed since t.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// After returns a channel that receives the time when d has passed.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	if c == nil {
		return time.After(d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := waiter{c.now.Add(d), make(chan time.Time, 1)}
	if d <= 0 {
		w.done <- c.now
		return w.done
	}
	c.waiting = append(c.waiting, w)
	return w.done
}

// Advance moves the clock forward by d, which must not be negative. It does not wait for what happens then: a server removes
// objects whose time to live has ended within 20 ms of real time, and refuses tokens that have expired at once.
func (c *Clock) Advance(d time.Duration) {
	if d < 0 {
		panic("clock: a clock cannot go back")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiter) bool {
		due := !w.until.After(c.now)
		if due {
			w.done <- c.now
		}
		return due
	})
}
