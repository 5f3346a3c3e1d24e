package flowcontrol

import (
	"context"
	"hash/maphash"
	"net/http"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// Ticket is one request in the Controller.
type Ticket struct {
	c        *Controller
	schema   *schema
	flow     *flow
	level    *level
	info     *request.Info
	user     *request.User
	distinct string // the flow distinguisher
	estimate Estimate
	kind     kind
	watch    bool

	// What follows is guarded by level.mu.
	request fairqueue.Request
	arrived time.Duration
	started time.Duration // when it executed first; 0 before that
	seated  bool
	ended   bool
	ready   chan struct{} // receives when the request got seats for which it waited

	// ctx and limit are the arguments of Wait.
	ctx   context.Context
	limit time.Duration
}

// Begin classifies a request and estimates how many seats it needs. It does not wait.
func (c *Controller) Begin(info *request.Info, user *request.User, rawQuery string) *Ticket {
	current := c.current.Load()
	s := current.fallback
	if i := current.classifier.Find(info, user); i >= 0 {
		s = current.schemas[i]
	}
	t := &Ticket{
		c: c, schema: s, flow: s.flow, level: s.flow.level, info: info, user: user, kind: mutating,
		watch: info.Verb == "watch",
	}
	switch info.Verb {
	case "get", "list", "watch", "head", "options":
		t.kind = readOnly
	}
	switch s.distinguisher {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		t.distinct = user.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		t.distinct = info.Namespace
	}
	t.estimate = c.estimate(info, rawQuery, int(t.level.mostSeat.Load()))
	t.request = fairqueue.Request{
		Hash:  maphash.String(c.seed, t.distinct) ^ maphash.String(c.seed, s.flow.schema),
		Seats: max(t.estimate.Initial, t.estimate.Final), Extra: t.estimate.Extra, Owner: t,
	}
	return t
}

// SetHeaders sets the headers that name the FlowSchema and the priority level.
func (t *Ticket) SetHeaders(h http.Header) {
	h[schemaHeader], h[levelHeader] = t.schema.schemaUID, t.schema.levelUID
}

// Wait waits until the request may execute, but not longer than limit. It returns false if the request is refused.
// If it returns true, the caller must call Release.
func (t *Ticket) Wait(ctx context.Context, limit time.Duration) bool {
	t.ctx, t.limit = ctx, limit
	return t.wait()
}

func (t *Ticket) wait() bool {
	outcome := t.arrive()
	if outcome == fairqueue.Waits {
		return t.sleep()
	}
	return outcome == fairqueue.Executes
}

// arrive adds the request to its level.
func (t *Ticket) arrive() fairqueue.Outcome {
	l := t.level
	now := l.lock(t.c)
	t.arrived = now
	outcome := l.queues.Arrive(now, &t.request)
	t.flow.arrived(t, l, outcome)
	switch outcome {
	case fairqueue.Executes:
		t.flow.waited(0, true)
		t.execute(now)
	case fairqueue.Waits:
		t.flow.waiting++
		t.flow.waitingSeats += t.request.Seats
		t.count(now, isWaiting, 1)
		if t.ready == nil {
			t.ready = make(chan struct{}, 1)
		}
	default:
		l.totals.rejected++
		reason := queueFull
		if outcome == fairqueue.NoSeats {
			reason = concurrencyLimit
		}
		t.flow.rejected[reason]++
		t.flow.waited(0, false)
	}
	l.unlock(now)
	return outcome
}

// sleep waits until a queued request has seats.
func (t *Ticket) sleep() bool {
	began := time.Now()
	defer func() { t.info.Tracker.AddOutside(time.Since(began)) }()
	timer := time.NewTimer(t.limit)
	defer timer.Stop()
	reason := timedOut
	select {
	case <-t.ready:
		return true
	case <-timer.C:
	case <-t.ctx.Done():
		if t.ctx.Err() == context.Canceled {
			reason = cancelled
		}
	}
	l := t.level
	now := l.lock(t.c)
	removed := l.queues.Cancel(now, &t.request)
	if removed {
		t.leaveQueue(now, false)
		t.flow.rejected[reason]++
		if reason == timedOut {
			l.totals.timedOut++
		} else {
			l.totals.cancelled++
		}
	}
	l.unlock(now)
	if !removed {
		<-t.ready // it got seats at the same time
	}
	return !removed
}

// RetryAfter returns the number of seconds after which the client of a refused request should try again.
func (t *Ticket) RetryAfter() int {
	now := t.level.lock(t.c)
	defer t.level.unlock(now)
	return t.level.retry.refused(now)
}

// leaveQueue notes that a request waits no more. The level is locked.
func (t *Ticket) leaveQueue(now time.Duration, executes bool) {
	t.flow.waiting--
	t.flow.waitingSeats -= t.request.Seats
	t.count(now, isWaiting, -1)
	t.flow.waited(now-t.arrived, executes)
}

// execute notes that a request has got seats. The level is locked.
func (t *Ticket) execute(now time.Duration) {
	if t.started == 0 {
		t.started = max(now, 1)
		t.flow.dispatched++
		t.level.totals.dispatched++
	}
	t.sit(now, true)
}

// count changes the number of requests of the ticket's kind in a phase. Watches are not counted.
func (t *Ticket) count(now time.Duration, p phase, by int) {
	if !t.watch {
		t.c.kinds[t.kind].add(now, p, by)
	}
}

// sit notes whether the request has seats. The level is locked.
func (t *Ticket) sit(now time.Duration, seated bool) {
	if t.seated == seated {
		return
	}
	t.seated = seated
	by := 1
	if !seated {
		by = -1
	}
	t.flow.executing += by
	t.flow.seats += by * t.request.Seats
	t.count(now, isExecuting, by)
}

// Pause gives the seats back until Resume, while the server waits for the client.
func (t *Ticket) Pause() {
	now := t.level.lock(t.c)
	if t.seated {
		t.level.queues.Pause(now, &t.request)
		t.sit(now, false)
	}
	t.level.unlock(now)
}

// Resume takes the seats again, even above the limit, so that a request that has begun its response can end.
func (t *Ticket) Resume() {
	now := t.level.lock(t.c)
	if !t.seated && !t.ended && t.started != 0 {
		t.level.queues.Resume(now, &t.request)
		t.sit(now, true)
	}
	t.level.unlock(now)
}

// readGrace is the time that a request keeps its seats while its body is read. A body has usually arrived when a
// request executes. If it has not, a slow client must not keep other requests from executing.
const readGrace = 50 * time.Millisecond

// Read calls read, which reads the body. If that takes longer than a moment, it gives the seats back meanwhile, and then
// waits again like a new request. It returns false if the request is refused then.
func (t *Ticket) Read(read func()) bool {
	paused := make(chan struct{})
	timer := time.AfterFunc(readGrace, func() {
		defer close(paused)
		t.Pause()
	})
	read()
	if timer.Stop() {
		return true
	}
	<-paused // a later Pause would take the seats that wait gets
	return t.wait()
}

// Release ends the request. Only the first call has an effect.
func (t *Ticket) Release() {
	l := t.level
	now := l.lock(t.c)
	if !t.ended && t.started != 0 {
		t.ended = true
		if l.queues.End(now, &t.request) {
			time.AfterFunc(t.request.Extra, t.leave)
		} else {
			t.sit(now, false)
		}
		t.flow.executed(t.watch, now-t.started)
	}
	l.unlock(now)
}

// leave gives the seats back after the additional latency.
func (t *Ticket) leave() {
	now := t.level.lock(t.c)
	t.level.queues.Leave(now, &t.request)
	t.sit(now, false)
	t.level.unlock(now)
}

// WatchBegins counts a watch until the returned function is called.
func (t *Ticket) WatchBegins(rawQuery string) (end func()) { return t.c.watchers.add(t.info, rawQuery) }
