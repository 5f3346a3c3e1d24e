package fairqueue

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// arrival is an event of a simulation: a request that arrives or ends.
type arrival struct {
	at      time.Duration
	flow    int
	request *Request // nil: a new one arrives
}

type arrivals []arrival

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return a[i].at < a[j].at }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)        { *a = append(*a, x.(arrival)) }
func (a *arrivals) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// mix simulates ten flows that send requests of 100 ms at random moments to a level of 10 seats: eight quiet flows with 8
// requests a second, and two noisy ones with 168. It returns the waiting times of each flow, in order, and how many
// requests were refused.
func mix(seed uint64) (waits [10][]time.Duration, refused [10]int) {
	const duration, end = 100 * time.Millisecond, 30 * time.Second
	random := rand.New(rand.NewPCG(seed, 3))
	l := New(Config{Queues: 64, HandSize: 6, QueueLength: 20}, 10, 0)
	var events arrivals
	var hashes [10]uint64
	for i := range hashes {
		hashes[i] = random.Uint64()
		heap.Push(&events, arrival{flow: i})
	}
	sent := map[*Request]time.Duration{}
	start := func(now time.Duration, r *Request) {
		flow := r.Owner.(int)
		waits[flow] = append(waits[flow], now-sent[r])
		heap.Push(&events, arrival{now + duration, flow, r})
	}
	for len(events) > 0 {
		e := heap.Pop(&events).(arrival)
		if e.request != nil {
			l.End(e.at, e.request)
		} else {
			rate := 8.0
			if e.flow < 2 {
				rate = 168
			}
			if next := e.at + time.Duration(random.ExpFloat64()/rate*float64(time.Second)); next < end {
				heap.Push(&events, arrival{at: next, flow: e.flow})
			}
			r := &Request{Hash: hashes[e.flow], Seats: 1, Owner: e.flow}
			sent[r] = e.at
			switch l.Arrive(e.at, r) {
			case Executes:
				start(e.at, r)
			case QueueFull:
				refused[e.flow]++
			}
		}
		for _, r := range l.Started() {
			start(e.at, r)
		}
	}
	for i := range waits {
		slices.Sort(waits[i])
	}
	return waits, refused
}

// TestQuietFlowsUnderOverload checks that no request of a quiet flow is refused while the noisy flows send four
// times what the level can serve, and that quiet flows wait much less than noisy ones.
func TestQuietFlowsUnderOverload(t *testing.T) {
	for seed := range uint64(6) {
		waits, refused := mix(seed)
		median := func(flow int) time.Duration { return waits[flow][len(waits[flow])/2] }
		noisy := min(median(0), median(1))
		for flow := 2; flow < len(waits); flow++ {
			if refused[flow] > 0 || median(flow) > noisy/3 {
				t.Errorf("seed %d: %d requests of flow %d were refused, the others waited %v; noisy ones waited %v",
					seed, refused[flow], flow, median(flow), noisy)
			}
		}
		if a, b := len(waits[0]), len(waits[1]); a*10 < b*9 || b*10 < a*9 {
			t.Errorf("seed %d: of the noisy flows %d and %d requests were served", seed, a, b)
		}
	}
}
