package fairqueue

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// queue is an active queue: a request of it waits or executes. Other queues have no state.
type queue struct {
	index       int
	first, last *Request
	length      int
	work        float64 // of the waiting requests
	waitSeats   int     // of the waiting requests
	executing   int
	seats       int     // that its requests occupy
	nextStart   float64 // the virtual time at which its next request should start
	turn        uint64  // when a request of it started last
	place       int     // in Level.order; -1 if no request waits
}

// activate returns the queue of an index, which becomes active.
func (l *Level) activate(index int) *queue {
	if q := l.queues[index]; q != nil {
		return q
	}
	var q *queue
	if n := len(l.free); n > 0 {
		q, l.free = l.free[n-1], l.free[:n-1]
	} else {
		q = &queue{}
	}
	*q = queue{index: index, nextStart: l.r, place: -1}
	l.queues[index] = q
	return q
}

// maxFree is the number of unused queues that are kept.
const maxFree = 64

// deactivate forgets a queue if no request of it waits or executes.
func (l *Level) deactivate(q *queue) {
	if q.length > 0 || q.executing > 0 {
		return
	}
	delete(l.queues, q.index)
	if len(l.free) < maxFree {
		l.free = append(l.free, q)
	}
}

func (q *queue) append(r *Request) {
	r.prev, r.next = q.last, nil
	if q.last != nil {
		q.last.next = r
	} else {
		q.first = r
	}
	q.last = r
	q.length++
	q.work += r.work()
	q.waitSeats += r.Seats
}

func (q *queue) remove(r *Request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		q.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		q.last = r.prev
	}
	r.next, r.prev = nil, nil
	q.length--
	q.work -= r.work()
	q.waitSeats -= r.Seats
	if q.length == 0 {
		q.work = 0 // without rounding errors
	}
}

// bound ensures that no request starts, in virtual time, before it arrived. Otherwise a queue that cannot use its share
// of the seats would save it up, and keep all other queues waiting when many requests arrive at once.
func (q *queue) bound() {
	if q.first != nil {
		q.nextStart = max(q.nextStart, q.first.arrivedR)
	}
}

// reorder moves a queue to its position in the order after its first request or its next start has changed.
func (l *Level) reorder(q *queue) {
	order := (*byFinish)(&l.order)
	switch {
	case q.length > 0 && q.place < 0:
		heap.Push(order, q)
	case q.length > 0:
		heap.Fix(order, q.place)
	case q.place >= 0:
		heap.Remove(order, q.place)
	}
}

// finish is the virtual time at which the first waiting request would end.
func (q *queue) finish() float64 { return q.nextStart + q.first.work() }

// less orders queues by the virtual time at which their first requests would end. If these are equal, the queue
// that was used least recently is first.
func (q *queue) less(other *queue) bool {
	return cmp.Or(cmp.Compare(q.finish(), other.finish()), cmp.Compare(q.turn, other.turn),
		cmp.Compare(q.index, other.index)) < 0
}

// byFinish is the heap of the queues in which requests wait.
type byFinish []*queue

func (f byFinish) Len() int           { return len(f) }
func (f byFinish) Less(i, j int) bool { return f[i].less(f[j]) }
func (f byFinish) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].place, f[j].place = i, j
}

// Push implements heap.Interface.
func (f *byFinish) Push(x any) {
	q := x.(*queue)
	q.place = len(*f)
	*f = append(*f, q)
}

// Pop implements heap.Interface.
func (f *byFinish) Pop() any {
	last := len(*f) - 1
	q := (*f)[last]
	(*f)[last] = nil
	*f = (*f)[:last]
	q.place = -1
	return q
}

// QueueState describes an active queue.
type QueueState struct {
	Index, Waiting, WaitingSeats, Executing, Seats int
	// NextStart and Work are in seat-seconds.
	NextStart, Work float64
	// Requests are the waiting requests, in order.
	Requests []*Request
}

// Queues returns the active queues in the order of their indexes.
func (l *Level) Queues() []QueueState {
	out := make([]QueueState, 0, len(l.queues))
	for _, q := range l.queues {
		s := QueueState{
			Index: q.index, Waiting: q.length, WaitingSeats: q.waitSeats, Executing: q.executing, Seats: q.seats,
			NextStart: q.nextStart / float64(time.Second), Work: q.work / float64(time.Second),
		}
		for r := q.first; r != nil; r = r.next {
			s.Requests = append(s.Requests, r)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b QueueState) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// Dispatch describes how the level chooses requests to start. All values are virtual times in seat-seconds.
type Dispatch struct {
	// R is the virtual time when a request was started last, and S the one at which that request should start.
	R, S float64
	// First and Last are the lowest and highest start time of the first requests of the queues in which requests
	// wait. FirstDiscounted and LastDiscounted are the same after the estimated work in progress was subtracted
	// from each start time. If no request waits, all are S.
	First, Last, FirstDiscounted, LastDiscounted float64
}

// Dispatch returns how requests are chosen. ok is false if none was started from a queue yet.
func (l *Level) Dispatch() (d Dispatch, ok bool) {
	if l.turn == 0 {
		return d, false
	}
	const unit = float64(time.Second)
	d = Dispatch{R: l.dispatchR / unit, S: l.latestS / unit}
	d.First, d.Last, d.FirstDiscounted, d.LastDiscounted = d.S, d.S, d.S, d.S
	for i, q := range l.order {
		start := q.nextStart / unit
		discounted := start - float64(q.seats)*guess.Seconds()
		if i == 0 {
			d.First, d.Last, d.FirstDiscounted, d.LastDiscounted = start, start, discounted, discounted
			continue
		}
		d.First, d.Last = min(d.First, start), max(d.Last, start)
		d.FirstDiscounted, d.LastDiscounted = min(d.FirstDiscounted, discounted), max(d.LastDiscounted, discounted)
	}
	return d, true
}

// Length returns how many requests wait in the queue of a request that waits or executes.
func (l *Level) Length(r *Request) int {
	if q := l.queues[r.index]; r.inQueue && q != nil {
		return q.length
	}
	return 0
}
