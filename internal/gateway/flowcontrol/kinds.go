package flowcontrol

import (
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
)

// kind says whether a request only reads.
type kind uint8

const (
	readOnly kind = iota
	mutating
	kinds
)

// String returns the value of the label request_kind.
func (k kind) String() string { return [kinds]string{"readOnly", "mutating"}[k] }

// phase is the state of a request.
type phase uint8

const (
	isWaiting phase = iota
	isExecuting
	phases
)

// String returns the value of the label phase.
func (p phase) String() string { return [phases]string{"waiting", "executing"}[p] }

// kindCounts has the numbers of requests of one kind, and histograms of the times for which each number lasted.
type kindCounts struct {
	limit float64 // requests that may execute, without priority and fairness

	mu    sync.Mutex // guards what follows
	now   time.Duration
	count [phases]int
	times [phases]fairqueue.Histogram // of count/limit; the weights are nanoseconds
}

func newKindCounts(limit int) *kindCounts {
	k := &kindCounts{limit: float64(max(limit, 1))}
	for p := range k.times {
		k.times[p] = fairqueue.NewHistogram([]float64{
			0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1})
	}
	return k
}

// add changes a count.
func (k *kindCounts) add(now time.Duration, p phase, by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advance(now)
	k.count[p] += by
}

func (k *kindCounts) advance(now time.Duration) {
	if now <= k.now {
		return
	}
	for p := range k.times {
		k.times[p].Add(float64(k.count[p])/k.limit, float64(now-k.now))
	}
	k.now = now
}

// snapshot returns the counts, and the histograms up to now.
func (k *kindCounts) snapshot(now time.Duration) (count [phases]int, times [phases]fairqueue.Histogram) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advance(now)
	for p := range times {
		times[p] = k.times[p].Clone()
	}
	return k.count, times
}
