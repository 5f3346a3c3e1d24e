package flowcontrol

import (
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
)

// flowKey names the requests of a FlowSchema at a priority level.
type flowKey struct{ schema, level string }

// reason is why a request was refused.
type reason int

const (
	queueFull reason = iota
	concurrencyLimit
	timedOut
	cancelled
	reasons
)

// String returns the value of the label reason.
func (r reason) String() string {
	return [reasons]string{"queue-full", "concurrency-limit", "time-out", "cancelled"}[r]
}

// flow counts the requests of a FlowSchema at a priority level. It is guarded by level.mu.
type flow struct {
	schema string
	level  *level

	dispatched                int64
	rejected                  [reasons]int64
	waiting, waitingSeats     int
	executing, seats          int
	waits                     [2]fairqueue.Histogram // [1]: requests that executed afterwards
	executions                [2]fairqueue.Histogram // 1: of watches
	lengths, widths, watchers fairqueue.Histogram
}

// The bounds of the histograms.
var (
	durationBounds = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	lengthBounds   = []float64{0, 10, 25, 50, 100, 250, 500, 1000}
	widthBounds    = []float64{1, 2, 4, 8, 16, 32, 64, 100}
	watcherBounds  = []float64{0, 1, 10, 100, 1000, 10000}
)

// observe adds to a histogram, which is made when it is first used: most FlowSchemas never are.
func observe(h *fairqueue.Histogram, bounds []float64, value float64) {
	if h.Bounds == nil {
		*h = fairqueue.NewHistogram(bounds)
	}
	h.Add(value, 1)
}

// arrived adds a request that has just arrived to the histograms.
func (f *flow) arrived(t *Ticket, l *level, outcome fairqueue.Outcome) {
	observe(&f.widths, widthBounds, float64(t.request.Seats))
	if t.estimate.Watchers >= 0 {
		observe(&f.watchers, watcherBounds, float64(t.estimate.Watchers))
	}
	if outcome == fairqueue.Executes || outcome == fairqueue.Waits {
		observe(&f.lengths, lengthBounds, float64(l.queues.Length(&t.request)))
	}
}

// waited notes how long a request has waited, and whether it executes then.
func (f *flow) waited(took time.Duration, executes bool) {
	observe(&f.waits[indexOf(executes)], durationBounds, took.Seconds())
}

// executed notes how long a request has executed.
func (f *flow) executed(watch bool, took time.Duration) {
	observe(&f.executions[indexOf(watch)], durationBounds, took.Seconds())
}

func indexOf(b bool) int {
	if b {
		return 1
	}
	return 0
}
