package fairqueue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// twin is a slow simulation of a Level. It keeps a list of all requests, and finds everything by looking at all of them.
type twin struct {
	config Config
	limit  int
	now    time.Duration
	r      float64
	all    []*twinRequest // in the order of their arrivals
	start  map[int]float64
	turns  map[int]uint64
	turn   uint64
}

type twinRequest struct {
	id, queue, seats int
	extra            time.Duration
	state            state
	inQueue          bool
	arrivedR         float64
	since, charged   time.Duration
}

func (r *twinRequest) seated() bool  { return r.state == executing || r.state == lingering }
func (r *twinRequest) work() float64 { return float64(r.seats) * float64(guess+r.extra) }

// sum adds f of all requests.
func (t *twin) sum(f func(*twinRequest) int) (n int) {
	for _, w := range t.all {
		n += f(w)
	}
	return n
}

func (t *twin) seats() int {
	return t.sum(func(w *twinRequest) int {
		if w.seated() {
			return w.seats
		}
		return 0
	})
}

func (t *twin) active() map[int]bool {
	out := map[int]bool{}
	for _, w := range t.all {
		if w.inQueue && (w.seated() || w.state == waiting) {
			out[w.queue] = true
		}
	}
	return out
}

// oldest returns the first waiting request of a queue.
func (t *twin) oldest(queue int) *twinRequest {
	for _, w := range t.all {
		if w.state == waiting && w.queue == queue {
			return w
		}
	}
	return nil
}

func (t *twin) advance(now time.Duration) {
	demand := t.seats() + t.sum(func(w *twinRequest) int {
		if w.state == waiting {
			return w.seats
		}
		return 0
	})
	if n := len(t.active()); n > 0 && now > t.now {
		t.r += float64(now-t.now) * float64(min(demand, t.limit)) / float64(n)
	}
	t.now = max(t.now, now)
}

// tidy forgets queues without requests, and applies the bound to the others.
func (t *twin) tidy() {
	active := t.active()
	for q := range t.start {
		if !active[q] {
			delete(t.start, q)
			delete(t.turns, q)
		} else if w := t.oldest(q); w != nil {
			t.start[q] = max(t.start[q], w.arrivedR)
		}
	}
}

func (t *twin) fits(seats int) bool {
	if seats > t.limit {
		return t.seats() == 0
	}
	return t.seats()+seats <= t.limit
}

// dispatch returns the ids of the requests that start.
func (t *twin) dispatch() (started []int) {
	for {
		t.tidy()
		var best *twinRequest
		for q := range t.active() {
			w := t.oldest(q)
			if w == nil {
				continue
			}
			if best == nil || before(t, w, best) {
				best = w
			}
		}
		if best == nil || !t.fits(best.seats) {
			return started
		}
		t.turn++
		t.turns[best.queue] = t.turn
		t.start[best.queue] += best.work()
		best.state, best.since, best.charged = executing, t.now, guess
		started = append(started, best.id)
	}
}

func before(t *twin, a, b *twinRequest) bool {
	x, y := t.start[a.queue]+a.work(), t.start[b.queue]+b.work()
	switch {
	case x != y:
		return x < y
	case t.turns[a.queue] != t.turns[b.queue]:
		return t.turns[a.queue] < t.turns[b.queue]
	}
	return a.queue < b.queue
}

func (t *twin) arrive(now time.Duration, w *twinRequest, hash uint64) (Outcome, []int) {
	t.advance(now)
	w.inQueue = false
	if t.config.Queues == 0 {
		if !t.fits(w.seats) {
			return NoSeats, nil
		}
		w.state, w.since, w.charged = executing, t.now, 0
		return Executes, nil
	}
	least := -1.0
	for _, q := range Deal(nil, hash, t.config.Queues, t.config.HandSize) {
		work := 0.0
		for _, o := range t.all {
			if o.state == waiting && o.queue == q {
				work += o.work()
			}
		}
		if least < 0 || work < least {
			w.queue, least = q, work
		}
	}
	if n := t.sum(func(o *twinRequest) int { return map[bool]int{true: 1}[o.state == waiting && o.queue == w.queue] }); n >=
		t.config.QueueLength {
		return QueueFull, nil
	}
	if !t.active()[w.queue] {
		t.start[w.queue] = t.r
	}
	// It is at the end of its queue, also if it was paused before.
	for i, o := range t.all {
		if o == w {
			t.all = append(t.all[:i:i], t.all[i+1:]...)
			break
		}
	}
	t.all = append(t.all, w)
	w.inQueue, w.arrivedR, w.state = true, t.r, waiting
	started := t.dispatch()
	for i, id := range started {
		if id == w.id {
			return Executes, append(started[:i:i], started[i+1:]...)
		}
	}
	return Waits, started
}

// settle charges the queue for the time in which the request had seats, instead of the guess.
func (t *twin) settle(w *twinRequest) {
	if w.inQueue {
		t.start[w.queue] += float64(w.seats) * float64(t.now-w.since-w.charged)
	}
}

func (t *twin) resume(now time.Duration, w *twinRequest) {
	t.advance(now)
	if w.state != paused {
		return
	}
	if w.inQueue && !t.active()[w.queue] {
		t.start[w.queue] = t.r
	}
	w.state, w.since, w.charged = executing, t.now, 0
}

// pair is a level with its twin.
type pair struct {
	t     *testing.T
	level *Level
	twin  *twin
	real  []*Request
	slow  []*twinRequest
	log   []string
}

func (p *pair) check(what string, started []int) {
	p.log = append(p.log, what)
	var got []int
	for _, r := range p.level.Started() {
		got = append(got, r.Owner.(int))
	}
	c := p.level.Counts()
	if fmt.Sprint(got) != fmt.Sprint(started) || c.Seats != p.twin.seats() || c.ActiveQueues != len(p.twin.active()) {
		p.t.Fatalf("after %v: started %v, twin %v; %+v, twin %d seats, %d active", p.log, got, started, c, p.twin.seats(),
			len(p.twin.active()))
	}
	for i, r := range p.real {
		if r.state != p.slow[i].state {
			p.t.Fatalf("after %v: request %d: %d, twin %d", p.log, i, r.state, p.slow[i].state)
		}
	}
}

// step makes one random change to both.
func (p *pair) step(random *rand.Rand, now time.Duration) {
	any := func() (int, bool) {
		if len(p.real) == 0 {
			return 0, false
		}
		return random.IntN(len(p.real)), true
	}
	switch k := random.IntN(20); {
	case k < 8:
		id, hash := len(p.real), uint64(random.IntN(5))*0x9e3779b97f4a7c15
		r := &Request{Hash: hash, Seats: 1 + random.IntN(4)*random.IntN(2)*random.IntN(2), Owner: id}
		if random.IntN(4) == 0 {
			r.Extra = time.Duration(random.IntN(5)) * time.Millisecond
		}
		w := &twinRequest{id: id, seats: r.Seats, extra: r.Extra}
		p.real, p.slow = append(p.real, r), append(p.slow, w)
		p.twin.all = append(p.twin.all, w)
		outcome := p.level.Arrive(now, r)
		want, started := p.twin.arrive(now, w, hash)
		if outcome != want {
			p.t.Fatalf("after %v: %d arrives: %d, twin %d", p.log, id, outcome, want)
		}
		p.check(fmt.Sprintf("%v arrive %d", now, id), started)
	case k < 19:
		if i, ok := any(); ok {
			p.change(k, i, now)
		}
	default:
		p.reconfigure(random, now)
	}
}

func (p *pair) change(kind, i int, now time.Duration) {
	r, w := p.real[i], p.slow[i]
	var started []int
	switch {
	case kind < 13:
		lingers, ended := p.level.End(now, r), w.state == executing && w.extra > 0
		p.twin.advance(now)
		switch {
		case w.state == executing && w.extra > 0:
			p.twin.settle(w)
			w.state = lingering
		case w.state == executing:
			p.twin.settle(w)
			w.state = idle
		case w.state == paused:
			w.state = idle
		}
		if lingers != ended {
			p.t.Fatalf("after %v: end %d: lingers %v", p.log, i, lingers)
		}
		started = p.twin.dispatch()
	case kind == 13:
		p.level.Leave(now, r)
		p.twin.advance(now)
		if w.state == lingering {
			w.state = idle
			started = p.twin.dispatch()
		}
	case kind < 16:
		p.level.Pause(now, r)
		p.twin.advance(now)
		if w.state == executing {
			p.twin.settle(w)
			w.state = paused
			started = p.twin.dispatch()
		}
	case kind == 16:
		p.level.Resume(now, r)
		p.twin.resume(now, w)
	case kind == 17 && w.state == paused:
		outcome := p.level.Arrive(now, r)
		want, s := p.twin.arrive(now, w, r.Hash)
		if outcome != want {
			p.t.Fatalf("after %v: %d arrives again: %d, twin %d", p.log, i, outcome, want)
		}
		started = s
	default:
		cancelled := p.level.Cancel(now, r)
		p.twin.advance(now)
		if cancelled != (w.state == waiting) {
			p.t.Fatalf("after %v: cancel %d: %v", p.log, i, cancelled)
		}
		if cancelled {
			w.state = idle
			started = p.twin.dispatch()
		}
	}
	p.check(fmt.Sprintf("%v kind %d of %d", now, kind, i), started)
}

func (p *pair) reconfigure(random *rand.Rand, now time.Duration) {
	p.twin.advance(now)
	if random.IntN(2) == 0 {
		p.twin.limit = random.IntN(7)
		p.level.SetLimit(now, p.twin.limit)
	} else {
		p.twin.config = randomConfig(random)
		p.level.Configure(now, p.twin.config)
	}
	p.check(fmt.Sprintf("%v limit %d %+v", now, p.twin.limit, p.twin.config), p.twin.dispatch())
}

func randomConfig(random *rand.Rand) Config {
	queues := random.IntN(6)
	return Config{Queues: queues, HandSize: 1 + random.IntN(max(queues, 1)), QueueLength: 1 + random.IntN(5)}
}

// TestLevelAndTwin makes random changes to levels and to their twins. Both must start the same requests in the same
// order.
func TestLevelAndTwin(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 14))
		config, limit := randomConfig(random), random.IntN(7)
		p := &pair{t: t, level: New(config, limit, 0), twin: &twin{
			config: config, limit: limit, start: map[int]float64{}, turns: map[int]uint64{},
		}}
		now := time.Duration(0)
		for range 150 {
			now += time.Duration(random.IntN(3)*random.IntN(20)) * time.Millisecond / 4
			p.step(random, now)
		}
	}
}
