// Package flowcontrol is API priority and fairness: it decides when each request may execute.
//
// Each request matches a FlowSchema, which names a priority level. The level has a number of seats; a request that finds
// none free waits in a queue of the level, or is refused. The parts that decide are in the packages below: classify finds
// the FlowSchema, fairqueue chooses the next request of a level, and allotment divides the seats of the server between
// the levels. This package connects them with the clock, with the goroutines of requests, with the configuration and
// with metrics.
package flowcontrol

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/allotment"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
)

// period is the interval in which the seats are divided again.
const period = 10 * time.Second

// Options are the dependencies of a Controller.
type Options struct {
	// ReadOnly and Mutating add up to the seats of the server.
	ReadOnly, Mutating int
	// Sizes returns how many objects a resource has, and false if that is not known. It may be nil.
	Sizes func(group, resource string) (Size, bool)
}

// Size is the number of objects of a resource, and the bytes that they take together; 0 bytes means that this is not
// known.
type Size struct{ Objects, Bytes int64 }

// Controller decides when requests execute. Its methods may be called concurrently.
type Controller struct {
	o     Options
	seats int
	began time.Time
	// seed makes the hashes of flows unpredictable, so that a client cannot choose a name that shares the queues of
	// another flow.
	seed maphash.Seed

	current  atomic.Pointer[config]
	watchers watchers
	kinds    [kinds]*kindCounts // all requests except watches

	mu       sync.Mutex // guards what follows, and the configuration of the levels
	levels   map[string]*level
	flows    map[flowKey]*flow
	fraction float64 // the fair fraction of the last division
}

// New returns a Controller with only the mandatory objects.
func New(o Options) *Controller {
	c := &Controller{
		kinds: [kinds]*kindCounts{newKindCounts(o.ReadOnly), newKindCounts(o.Mutating)},
		o:     o, seats: o.ReadOnly + o.Mutating, began: time.Now(), seed: maphash.MakeSeed(),
		levels: map[string]*level{}, flows: map[flowKey]*flow{}, watchers: watchers{counts: map[watchKey]int{}},
	}
	c.Configure(nil, nil)
	return c
}

func (c *Controller) now() time.Duration { return time.Since(c.began) }

// Current returns how many requests have seats, without watches.
func (c *Controller) Current() (read, write int64) { return c.inPhase(isExecuting) }

// Queued returns how many requests wait, without watches.
func (c *Controller) Queued() (read, write int64) { return c.inPhase(isWaiting) }

func (c *Controller) inPhase(p phase) (read, write int64) {
	now := c.now()
	r, _ := c.kinds[readOnly].snapshot(now)
	w, _ := c.kinds[mutating].snapshot(now)
	return int64(r[p]), int64(w[p])
}

// level is a priority level.
type level struct {
	name     string
	mostSeat atomic.Int64 // the largest width of a request

	mu     sync.Mutex // guards what follows
	queues *fairqueue.Level
	totals totals
	retry  retryAfter

	// What follows is guarded by Controller.mu.
	uid      string
	exempt   bool
	wanted   bool // it is in the configuration; otherwise it ends when it has no requests
	shares   allotment.Shares
	bounds   allotment.Bounds
	demand   allotment.Demand
	target   float64
	assigned int
}

// totals counts the requests of a level.
type totals struct{ dispatched, rejected, timedOut, cancelled int64 }

func (l *level) lock(c *Controller) time.Duration {
	l.mu.Lock()
	return c.now()
}

// unlock notifies the requests that have got seats, and unlocks the level.
func (l *level) unlock(now time.Duration) {
	for _, r := range l.queues.Started() {
		t := r.Owner.(*Ticket)
		t.leaveQueue(now, true)
		t.execute(now)
		t.ready <- struct{}{} // its buffer is empty: a ticket is started once for each time that it waits
	}
	l.mu.Unlock()
}

// Run divides the seats again every ten seconds until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.Adjust()
		}
	}
}

// Adjust divides the seats by the demand since the last call.
func (c *Controller) Adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeUnwanted()
	all := c.sortedLevels()
	parts := make([]allotment.Level, len(all))
	for i, l := range all {
		now := l.lock(c)
		demand := l.queues.Demand(now)
		l.unlock(now)
		l.demand.Add(demand)
		parts[i] = allotment.Level{Bounds: l.bounds, Exempt: l.exempt, Demand: l.demand}
	}
	results, fraction := allotment.Divide(parts)
	c.fraction = fraction
	for i, l := range all {
		l.target = results[i].Target
		l.assign(c, results[i].Seats)
	}
}

// assign gives a level a number of seats.
func (l *level) assign(c *Controller, seats int) {
	l.assigned = seats
	now := l.lock(c)
	l.queues.SetLimit(now, seats)
	l.unlock(now)
}

// removeUnwanted removes the levels that are not configured any more and have no requests.
func (c *Controller) removeUnwanted() {
	removed := false
	for name, l := range c.levels {
		if l.wanted {
			continue
		}
		l.mu.Lock()
		idle := l.queues.Idle()
		l.mu.Unlock()
		if idle {
			delete(c.levels, name)
			removed = true
		}
	}
	if removed {
		c.divideNominally()
	}
}

// sortedLevels returns the levels by name.
func (c *Controller) sortedLevels() []*level {
	all := make([]*level, 0, len(c.levels))
	for _, l := range c.levels {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *level) int { return strings.Compare(a.name, b.name) })
	return all
}
