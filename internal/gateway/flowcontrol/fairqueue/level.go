// Package fairqueue decides in which order the requests of one priority level execute. It is pure: it has no locks, no
// goroutines and no clock; the caller passes the time to every call and makes one call at a time.
//
// A level has a number of seats. A request occupies one or more of them (its width) while it executes. A request that
// finds no free seats waits in one of the queues of the level. Each flow (the requests of one user, for example) may
// use only a few queues, its hand, which are chosen by the hash of the flow. So a flow that sends very many requests
// fills its own hand, and other flows probably have a queue that it does not use.
//
// The next request to execute is chosen by virtual time. The virtual time R is how much service, in seats times
// nanoseconds, each active queue should have had by now. It advances by
//
//	min(seats in use + seats waited for, limit) / active queues
//
// for each nanosecond. A queue is active while a request of it waits or executes. Each queue has the virtual time at
// which its next request should start. When a request starts, this time advances by the width times a guess of the
// duration. When it ends, the guess is replaced by the real duration. The queue is chosen whose next request would end
// first in virtual time.
//
// For example, a level has 1 seat, and the queues A and B each have two requests of 10 ms. Both queues begin at 0. A
// starts, because it was used least recently; its next start becomes 3 ms (the guess) and, when the request ends, 10
// ms. B is still at 0 and is next. Then both are at 10 ms, and A is next.
package fairqueue

import (
	"math"
	"slices"
	"time"
)

// guess is the assumed duration of a request that is still executing.
const guess = 3 * time.Millisecond

// epoch is the virtual time, in seat-nanoseconds, at which virtual times start again at 0, so that they stay exact.
const epoch = 1e15

// Config describes the queues of a level.
type Config struct {
	// Exempt means that requests never wait.
	Exempt bool
	// Queues is the number of queues. If it is 0, a request is refused when it finds no free seats.
	Queues int
	// HandSize is the number of queues that a flow may use.
	HandSize int
	// QueueLength is the largest number of waiting requests of one queue.
	QueueLength int
}

// Outcome is the result of the arrival of a request.
type Outcome uint8

// The outcomes.
const (
	Executes  Outcome = iota
	Waits             // until it is in Level.Started
	QueueFull         // refused: its queue is full
	NoSeats           // refused: the level has no queues and no free seats
)

// state is where a request is.
type state uint8

const (
	idle      state = iota // new, refused or ended
	waiting                // in a queue
	executing              // has seats
	paused                 // executes without seats
	lingering              // has ended, but occupies its seats for its Extra time
)

// Request is a request of one level. The caller sets the exported fields before Arrive.
type Request struct {
	// Hash is the hash of the flow. It chooses the hand.
	Hash uint64
	// Seats is the width, at least 1.
	Seats int
	// Extra is the time for which the request occupies its seats after it has ended.
	Extra time.Duration
	// Owner is not used by this package.
	Owner any

	state      state
	inQueue    bool // the level had queues when the request arrived
	index      int  // of its queue
	arrivedR   float64
	charged    time.Duration // the part of the execution that the queue was charged for in advance
	since      time.Duration // when it got its seats
	next, prev *Request      // in the queue
}

// work is the service that a request is assumed to need, in seat-nanoseconds.
func (r *Request) work() float64 { return float64(r.Seats) * float64(guess+r.Extra) }

// Level is the state of one priority level.
type Level struct {
	config Config
	limit  int
	now    time.Duration
	r      float64 // the virtual time R
	epochs int64

	queues map[int]*queue // the active ones, by index
	free   []*queue       // for queues that become active
	order  []*queue       // a heap of the queues in which requests wait
	turn   uint64         // counts the starts of waiting requests
	// dispatchR is R at the last start of a waiting request, latestS the virtual time at which it should have
	// started.
	dispatchR, latestS float64

	counts  Counts
	meter   meter
	started []*Request
	hand    []int
}

// Counts are the numbers of requests and seats of a level.
type Counts struct {
	Waiting, WaitingSeats int
	// Executing counts the requests that have seats, Seats their seats.
	Executing, Seats int
	ActiveQueues     int
}

// New returns a level without requests.
func New(config Config, limit int, now time.Duration) *Level {
	l := &Level{config: config, limit: limit, now: now, queues: map[int]*queue{}}
	l.meter.init()
	return l
}

// Counts returns the current numbers.
func (l *Level) Counts() Counts {
	c := l.counts
	c.ActiveQueues = len(l.queues)
	return c
}

// Limit returns the number of seats.
func (l *Level) Limit() int { return l.limit }

// Config returns the description of the queues.
func (l *Level) Config() Config { return l.config }

// Idle reports whether the level has no requests.
func (l *Level) Idle() bool { return l.counts.Waiting == 0 && l.counts.Executing == 0 }

// VirtualTime returns R in seat-seconds, and how often it started again at 0.
func (l *Level) VirtualTime() (r float64, epochs int64) { return l.r / float64(time.Second), l.epochs }

// Configure changes the description of the queues. Waiting requests stay in their queues.
func (l *Level) Configure(now time.Duration, config Config) {
	l.advance(now)
	l.config = config
	l.dispatch()
}

// SetLimit changes the number of seats. Executing requests keep theirs.
func (l *Level) SetLimit(now time.Duration, limit int) {
	l.advance(now)
	l.limit = limit
	l.dispatch()
}

// Started returns the requests that have waited, and have got seats since the last call of Started. The caller
// uses the result before it calls another method.
func (l *Level) Started() []*Request {
	s := l.started
	l.started = l.started[:0]
	return s
}

// advance brings the virtual time and the statistics up to now.
func (l *Level) advance(now time.Duration) {
	passed := now - l.now
	if passed <= 0 {
		return // clocks of several processors may differ by some nanoseconds
	}
	l.now = now
	l.meter.add(passed, l.counts, l)
	if len(l.queues) == 0 {
		return
	}
	busy := min(l.counts.Seats+l.counts.WaitingSeats, l.limit)
	l.r += float64(passed) * float64(busy) / float64(len(l.queues))
	if l.r > epoch {
		l.restart()
	}
}

// restart makes the current virtual time 0.
func (l *Level) restart() {
	for _, q := range l.queues {
		q.nextStart -= l.r
		for r := q.first; r != nil; r = r.next {
			r.arrivedR -= l.r
		}
	}
	l.dispatchR, l.latestS = l.dispatchR-l.r, l.latestS-l.r
	l.r = 0
	l.epochs++
}

// Arrive adds a new request, or one that has ended, or one that is paused and has to queue again like a new one.
func (l *Level) Arrive(now time.Duration, r *Request) Outcome {
	l.advance(now)
	r.inQueue = false
	if l.config.Exempt || l.config.Queues == 0 {
		if !l.fits(r.Seats) {
			return NoSeats
		}
		l.occupy(r, 0)
		return Executes
	}
	index := l.choose(r.Hash)
	q := l.activate(index)
	if q.length >= l.config.QueueLength {
		return QueueFull
	}
	r.inQueue, r.index, r.arrivedR, r.state = true, index, l.r, waiting
	q.append(r)
	l.counts.Waiting++
	l.counts.WaitingSeats += r.Seats
	q.bound()
	l.reorder(q)
	l.dispatch()
	if r.state == waiting {
		return Waits
	}
	l.started = slices.DeleteFunc(l.started, func(s *Request) bool { return s == r }) // Executes reports its start
	return Executes
}

// choose returns the queue of the flow's hand with the least work waiting.
func (l *Level) choose(hash uint64) int {
	l.hand = Deal(l.hand[:0], hash, l.config.Queues, l.config.HandSize)
	best, least := 0, math.Inf(1)
	for _, index := range l.hand {
		q := l.queues[index]
		if q == nil {
			return index
		}
		if q.work < least {
			best, least = index, q.work
		}
		if least == 0 {
			break
		}
	}
	return best
}

// fits reports whether a request of that width may start now. A request that is wider than the limit may start when
// no seat is occupied.
func (l *Level) fits(seats int) bool {
	switch {
	case l.config.Exempt:
		return true
	case seats > l.limit:
		return l.counts.Seats == 0
	}
	return l.counts.Seats+seats <= l.limit
}

// dispatch starts waiting requests while the next one fits.
func (l *Level) dispatch() {
	for len(l.order) > 0 {
		q := l.order[0]
		r := q.first
		if !l.fits(r.Seats) {
			return
		}
		l.dispatchR, l.latestS = l.r, q.nextStart
		l.unqueue(q, r)
		l.turn++
		q.turn = l.turn
		q.nextStart += r.work()
		l.occupy(r, guess)
		q.bound()
		l.reorder(q)
		l.started = append(l.started, r)
	}
}

// occupy gives seats to a request, whose queue was charged for a part of the execution in advance.
func (l *Level) occupy(r *Request, charged time.Duration) {
	r.state, r.since, r.charged = executing, l.now, charged
	l.counts.Executing++
	l.counts.Seats += r.Seats
	if r.inQueue {
		q := l.activate(r.index)
		q.executing++
		q.seats += r.Seats
	}
}

// vacate takes the seats from a request.
func (l *Level) vacate(r *Request) {
	l.counts.Executing--
	l.counts.Seats -= r.Seats
	if r.inQueue {
		q := l.queues[r.index]
		q.executing--
		q.seats -= r.Seats
		l.deactivate(q)
	}
	l.dispatch()
}

// settle charges the queue for the time in which the request had seats, instead of the guess.
func (l *Level) settle(r *Request) {
	if !r.inQueue {
		return
	}
	q := l.queues[r.index]
	q.nextStart += float64(r.Seats) * float64(l.now-r.since-r.charged)
	q.bound()
	l.reorder(q)
}

// Cancel removes a waiting request. It returns false if the request does not wait, for example because it executes.
func (l *Level) Cancel(now time.Duration, r *Request) bool {
	l.advance(now)
	if r.state != waiting {
		return false
	}
	q := l.queues[r.index]
	l.unqueue(q, r)
	r.state = idle
	q.bound()
	l.reorder(q)
	l.deactivate(q)
	l.dispatch() // it may have been the one that did not fit
	return true
}

// unqueue removes a request from the queue in which it waits.
func (l *Level) unqueue(q *queue, r *Request) {
	q.remove(r)
	l.counts.Waiting--
	l.counts.WaitingSeats -= r.Seats
}

// Pause takes the seats from an executing request, which goes on without them.
func (l *Level) Pause(now time.Duration, r *Request) {
	l.advance(now)
	if r.state != executing {
		return
	}
	l.settle(r)
	r.state = paused
	l.vacate(r)
}

// Resume gives the seats back to a paused request, even above the limit, so that it can end.
func (l *Level) Resume(now time.Duration, r *Request) {
	l.advance(now)
	if r.state == paused {
		l.occupy(r, 0)
	}
}

// End ends a request that executes or is paused. If it returns true, the request occupies its seats for its Extra
// time; then the caller calls Leave.
func (l *Level) End(now time.Duration, r *Request) (lingers bool) {
	l.advance(now)
	switch r.state {
	case executing:
		l.settle(r)
		if r.Extra > 0 {
			r.state = lingering
			l.dispatch() // another queue may be first now, with a narrower request
			return true
		}
		l.vacate(r)
	case paused:
	default:
		return false
	}
	r.state = idle
	return false
}

// Leave takes the seats from a request after its Extra time.
func (l *Level) Leave(now time.Duration, r *Request) {
	l.advance(now)
	if r.state == lingering {
		r.state = idle
		l.vacate(r)
	}
}
