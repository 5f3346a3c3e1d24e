package fairqueue

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// load simulates clients, each of which always has one request that waits or executes.
type load struct {
	level   *Level
	now     time.Duration
	running map[*Request]time.Duration // when each executing request ends
	flows   []*flow
	most    int // seats in use at any time
}

type flow struct {
	hash     uint64
	clients  int // requests that wait or execute, if none is refused
	seats    int
	duration time.Duration
	service  time.Duration // seats times duration of what has ended
	ended    int
	refused  int
	longest  time.Duration // wait
	sent     map[*Request]time.Duration
}

func (l *load) send(f *flow) {
	r := &Request{Hash: f.hash, Seats: f.seats, Owner: f}
	switch l.level.Arrive(l.now, r) {
	case Executes:
		l.running[r] = l.now + f.duration
	case Waits:
		f.sent[r] = l.now
	default:
		f.refused++
	}
	l.collect()
}

func (l *load) collect() {
	for _, r := range l.level.Started() {
		f := r.Owner.(*flow)
		f.longest = max(f.longest, l.now-f.sent[r])
		delete(f.sent, r)
		l.running[r] = l.now + f.duration
	}
	l.most = max(l.most, l.level.Counts().Seats)
}

// run simulates until end. A client sends the next request when its last one has ended.
func (l *load) run(end time.Duration) {
	for _, f := range l.flows {
		f.sent = map[*Request]time.Duration{}
		for range f.clients {
			l.send(f)
		}
	}
	for l.now < end && len(l.running) > 0 {
		var next *Request
		for r, at := range l.running {
			if next == nil || at < l.running[next] || at == l.running[next] && r.Owner.(*flow).hash < next.Owner.(*flow).hash {
				next = r
			}
		}
		l.now = l.running[next]
		delete(l.running, next)
		f := next.Owner.(*flow)
		f.service += time.Duration(f.seats) * f.duration
		f.ended++
		l.level.End(l.now, next)
		l.collect()
		l.send(f)
	}
}

func newLoad(config Config, limit int, flows ...*flow) *load {
	return &load{level: New(config, limit, 0), running: map[*Request]time.Duration{}, flows: flows}
}

// TestSharesAreFair has flows of different widths, durations and numbers of clients, each with a queue of its own. All
// always have requests waiting, so each must get the same part of the seats.
func TestSharesAreFair(t *testing.T) {
	flows := []*flow{
		{hash: 0, clients: 40, seats: 1, duration: 10 * time.Millisecond},
		{hash: 1, clients: 200, seats: 1, duration: 10 * time.Millisecond},
		{hash: 2, clients: 40, seats: 4, duration: 10 * time.Millisecond},
		{hash: 3, clients: 40, seats: 1, duration: 70 * time.Millisecond},
	}
	s := newLoad(Config{Queues: 4, HandSize: 1, QueueLength: 1000}, 8, flows...)
	s.run(20 * time.Second)
	all := time.Duration(0)
	for _, f := range flows {
		all += f.service
	}
	if used := all.Seconds() / (8 * 20); used < 0.97 {
		t.Errorf("%.3f of the seats are used", used)
	}
	for _, f := range flows {
		if share := float64(f.service) / float64(all); math.Abs(share-0.25) > 0.01 {
			t.Errorf("flow %d has %.3f of the service", f.hash, share)
		}
	}
	if s.most > 8 {
		t.Errorf("%d seats were in use", s.most)
	}
}

// TestQuietFlowsDoNotWait has two noisy flows, and eight flows with one request at a time. The hands are dealt from 128
// queues. A quiet flow needs less than its share, so it must not wait much longer than until some request ends.
func TestQuietFlowsDoNotWait(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		var flows []*flow
		for i := range 10 {
			f := &flow{hash: random.Uint64(), clients: 1, seats: 1, duration: 10 * time.Millisecond}
			if i < 2 {
				f.clients = 100
			}
			flows = append(flows, f)
		}
		s := newLoad(Config{Queues: 128, HandSize: 6, QueueLength: 50}, 20, flows...)
		s.run(5 * time.Second)
		for i, f := range flows {
			if f.refused > 0 {
				t.Errorf("seed %d: %d requests of flow %d are refused", seed, f.refused, i)
			}
			if i >= 2 && f.longest > 20*time.Millisecond {
				t.Errorf("seed %d: a request of the quiet flow %d waited %v", seed, i, f.longest)
			}
		}
	}
}

// TestNobodyStarves has random flows, some of them wider than the level. Requests of each flow must be able to
// execute.
func TestNobodyStarves(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		limit := 1 + random.IntN(8)
		var flows []*flow
		for range 2 + random.IntN(6) {
			flows = append(flows, &flow{
				hash: random.Uint64(), clients: 1 + random.IntN(8), seats: 1 + random.IntN(12),
				duration: time.Duration(1+random.IntN(40)) * time.Millisecond,
			})
		}
		widest := slices.MaxFunc(flows, func(a, b *flow) int { return a.seats - b.seats }).seats
		s := newLoad(Config{Queues: 8, HandSize: 3, QueueLength: 100}, limit, flows...)
		s.run(20 * time.Second)
		if s.most > max(limit, widest) {
			t.Errorf("seed %d: %d seats of %d were in use", seed, s.most, limit)
		}
		for i, f := range flows {
			if f.ended < 10 {
				t.Errorf("seed %d: %d requests of flow %d ended", seed, f.ended, i)
			}
		}
	}
}

// TestVirtualTimeStartsAgain checks that a level goes on as before after its virtual time has started again at 0.
func TestVirtualTimeStartsAgain(t *testing.T) {
	flows := []*flow{
		{hash: 0, clients: 40, seats: 1, duration: time.Hour}, {hash: 1, clients: 40, seats: 4, duration: time.Hour},
	}
	s := newLoad(Config{Queues: 2, HandSize: 1, QueueLength: 1000}, 8, flows...)
	s.run(2000 * time.Hour)
	if _, epochs := s.level.VirtualTime(); epochs < 3 {
		t.Errorf("it started again %d times", epochs)
	}
	if a, b := flows[0].service, flows[1].service; math.Abs(float64(a)/float64(a+b)-0.5) > 0.01 {
		t.Errorf("%v and %v", a, b)
	}
}

// TestDeal checks that hands have different queues, are evenly distributed, and depend on nothing but the hash.
func TestDeal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	times := make([]int, 10)
	for range 10000 {
		hash := random.Uint64()
		hand := Deal(nil, hash, 10, 4)
		if again := Deal(nil, hash, 10, 4); !slices.Equal(hand, again) {
			t.Fatalf("%v and %v", hand, again)
		}
		for _, q := range hand {
			times[q]++
		}
		slices.Sort(hand)
		if len(slices.Compact(hand)) != 4 {
			t.Fatalf("%x: %v", hash, hand)
		}
	}
	for q, n := range times {
		if n < 3700 || n > 4300 {
			t.Errorf("queue %d is in %d hands of 4000", q, n)
		}
	}
	if got := Deal(nil, 1+4*1, 4, 2); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("the example: %v", got)
	}
}

// TestQueuesTakeNoMemory checks that only active queues have state: a level may have ten million.
func TestQueuesTakeNoMemory(t *testing.T) {
	l := New(Config{Queues: 10_000_000, HandSize: 2, QueueLength: 50}, 10, 0)
	for i := range uint64(1000) {
		r := &Request{Hash: i * 0x9e3779b97f4a7c15, Seats: 1}
		l.Arrive(0, r)
		l.End(0, r)
	}
	if len(l.queues) != 0 || len(l.free) > maxFree {
		t.Errorf("%d active queues, %d free", len(l.queues), len(l.free))
	}
}

// TestNoAllocations checks that requests which need not wait cost no memory.
func TestNoAllocations(t *testing.T) {
	l := New(Config{Queues: 128, HandSize: 6, QueueLength: 50}, 10, 0)
	r, now := &Request{Hash: 1 << 40, Seats: 1}, time.Duration(0)
	if n := testing.AllocsPerRun(100, func() {
		now += time.Millisecond
		l.Arrive(now, r)
		l.Pause(now, r)
		l.Resume(now, r)
		l.End(now, r)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestDemand checks the statistics of a period.
func TestDemand(t *testing.T) {
	l := New(Config{Queues: 1, HandSize: 1, QueueLength: 50}, 1, 0)
	requests := make([]*Request, 3)
	for i := range requests {
		requests[i] = &Request{Seats: 1}
		l.Arrive(0, requests[i])
	}
	for _, r := range requests {
		l.End(l.now+time.Second, r)
		l.Started()
	}
	d := l.Demand(4 * time.Second) // 3, 2, 1 and 0 seats for a second each
	if d.Max != 3 || d.Average != 1.5 || math.Abs(d.Deviation-math.Sqrt(1.25)) > 1e-9 {
		t.Errorf("%+v", d)
	}
	if d = l.Demand(5 * time.Second); d != (Demand{}) {
		t.Errorf("%+v", d)
	}
	if u := l.Usage(5 * time.Second); u.Executing.Weights[9] != 3e9 || u.Executing.Weights[0] != 2e9 {
		t.Errorf("%+v", u.Executing)
	}
}

func BenchmarkLevel(b *testing.B) {
	l := New(Config{Queues: 128, HandSize: 6, QueueLength: 50}, 10, 0)
	r, now := &Request{Hash: 1 << 40, Seats: 1}, time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += time.Microsecond
		l.Arrive(now, r)
		l.Pause(now, r)
		l.Resume(now, r)
		l.End(now, r)
	}
}

// TestDispatchShowsTheWaitingQueues lets one request execute and others wait in two queues with different amounts of work.
func TestDispatchShowsTheWaitingQueues(t *testing.T) {
	l := New(Config{Queues: 64, HandSize: 1, QueueLength: 10}, 1, 0)
	if _, ok := l.Dispatch(); ok {
		t.Error("there was no request, but one was started")
	}
	first := &Request{Hash: 0, Seats: 1}
	if l.Arrive(0, first) != Executes {
		t.Fatal("the first request waits")
	}
	d, ok := l.Dispatch()
	if want := (Dispatch{}); !ok || d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
	// The queue of the first request is charged 3 ms in advance; the other one begins at the virtual time, which is 2 ms.
	l.Arrive(time.Millisecond, &Request{Hash: 0, Seats: 1})
	l.Arrive(2*time.Millisecond, &Request{Hash: 1, Seats: 1})
	d, _ = l.Dispatch()
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if d.R != 0 || d.S != 0 || !near(d.First, 0.002) || !near(d.Last, 0.003) || !near(d.FirstDiscounted, 0) ||
		!near(d.LastDiscounted, 0.002) {
		t.Errorf("%+v", d)
	}
	l.End(3*time.Millisecond, first)
	if d, _ = l.Dispatch(); d.R == 0 || !near(d.S, 0.002) && !near(d.S, 0.003) {
		t.Errorf("after another start: %+v", d)
	}
}
