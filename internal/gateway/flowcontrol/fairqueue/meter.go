package fairqueue

import (
	"math"
	"time"
)

// Histogram counts observations, or sums their weights, by value.
type Histogram struct {
	// Bounds are the upper bounds of all buckets but the last.
	Bounds []float64
	// Weights are the weights of the observations in each bucket, not cumulative.
	Weights []float64
	Sum     float64
}

// NewHistogram returns an empty histogram.
func NewHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Weights: make([]float64, len(bounds)+1)}
}

// Add adds an observation.
func (h *Histogram) Add(value, weight float64) {
	i := 0
	for i < len(h.Bounds) && value > h.Bounds[i] {
		i++
	}
	h.Weights[i] += weight
	h.Sum += value * weight
}

// Clone returns a copy.
func (h *Histogram) Clone() Histogram {
	c := *h
	c.Weights = append([]float64(nil), h.Weights...)
	return c
}

// Usage has the histograms of how much a level is used. The weights are nanoseconds.
type Usage struct {
	// Demand has the seats that were occupied or waited for, divided by the nominal limit.
	Demand Histogram
	// Seats has the occupied seats, divided by the limit.
	Seats Histogram
	// Executing has the executing requests, divided by the limit; Waiting the waiting ones, divided by the places
	// in all queues.
	Executing, Waiting Histogram
}

// Demand describes how many seats a level could use in a period.
type Demand struct{ Max, Average, Deviation float64 }

// meter collects the statistics of a level.
type meter struct {
	usage              Usage
	nominal            float64
	time, sum, squares float64 // of the demand in the current period
	highest            float64
}

func (m *meter) init() {
	fine := []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
	m.usage = Usage{
		Demand:    NewHistogram([]float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}),
		Seats:     NewHistogram([]float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}),
		Executing: NewHistogram(fine), Waiting: NewHistogram(fine),
	}
	m.nominal = 1
}

// add records that the counts were c for the time passed.
func (m *meter) add(passed time.Duration, c Counts, l *Level) {
	demand, weight := float64(c.Seats+c.WaitingSeats), float64(passed)
	m.time += weight
	m.sum += demand * weight
	m.squares += demand * demand * weight
	m.highest = max(m.highest, demand)
	limit := float64(max(l.limit, 1))
	m.usage.Demand.Add(demand/m.nominal, weight)
	m.usage.Seats.Add(float64(c.Seats)/limit, weight)
	m.usage.Executing.Add(float64(c.Executing)/limit, weight)
	m.usage.Waiting.Add(float64(c.Waiting)/float64(max(l.config.Queues*l.config.QueueLength, 1)), weight)
}

// SetNominal sets the nominal limit, to which Usage.Demand is relative.
func (l *Level) SetNominal(now time.Duration, nominal int) {
	l.advance(now)
	l.meter.nominal = float64(max(nominal, 1))
}

// Usage returns the histograms up to now. They belong to the caller.
func (l *Level) Usage(now time.Duration) Usage {
	l.advance(now)
	u := l.meter.usage
	return Usage{Demand: u.Demand.Clone(), Seats: u.Seats.Clone(), Executing: u.Executing.Clone(), Waiting: u.Waiting.Clone()}
}

// Demand returns the demand since the last call, and begins a new period.
func (l *Level) Demand(now time.Duration) Demand {
	l.advance(now)
	m := &l.meter
	current := float64(l.counts.Seats + l.counts.WaitingSeats)
	d := Demand{Max: max(m.highest, current)}
	if m.time > 0 {
		d.Average = m.sum / m.time
		d.Deviation = math.Sqrt(max(m.squares/m.time-d.Average*d.Average, 0))
	}
	m.time, m.sum, m.squares, m.highest = 0, 0, 0, current
	return d
}
