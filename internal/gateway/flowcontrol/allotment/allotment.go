// Package allotment divides the seats of a server between its priority levels.
//
// Each level has a nominal number of seats, in proportion to its shares. It may lend a part of them to other levels,
// and may borrow from others. Every period the current numbers are computed again from the demand. All functions are
// pure.
package allotment

import (
	"math"
	"sort"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
)

// Shares are the configuration of a level.
type Shares struct {
	// Nominal are the concurrency shares.
	Nominal int
	// LendablePercent is the percentage of the nominal seats that other levels may borrow.
	LendablePercent int
	// BorrowingPercent limits the seats that the level may borrow, in percent of its nominal seats; nil means no limit.
	BorrowingPercent *int
}

// Bounds are the numbers of seats that a level may have.
type Bounds struct{ Nominal, Min, Max int }

// Of returns the bounds of a level. allShares is the sum of the shares of all levels, seats the number of seats of the
// server. Nominal seats are rounded up, so that a level with shares has at least one.
func (s Shares) Of(allShares, seats int) Bounds {
	nominal := 0
	if allShares > 0 {
		nominal = int(math.Ceil(float64(seats) * float64(s.Nominal) / float64(allShares)))
	}
	percent := func(p int) int { return int(math.Round(float64(nominal) * float64(p) / 100)) }
	b := Bounds{Nominal: nominal, Min: nominal - percent(s.LendablePercent), Max: nominal + seats}
	if s.BorrowingPercent != nil {
		b.Max = nominal + percent(*s.BorrowingPercent)
	}
	return b
}

// Demand is the demand of a level over the periods until now.
type Demand struct {
	// Max, Average and Deviation describe the last period.
	fairqueue.Demand
	// Smoothed rises at once and falls slowly, by half in five minutes.
	Smoothed float64
}

// decay is the part of the smoothed demand that remains after a period of ten seconds.
const decay = 0.977

// Add adds the demand of a period.
func (d *Demand) Add(period fairqueue.Demand) {
	d.Demand = period
	envelope := min(period.Max, period.Average+period.Deviation)
	d.Smoothed = max(envelope, decay*d.Smoothed+(1-decay)*envelope)
}

// Level is a level among which seats are divided.
type Level struct {
	Bounds Bounds
	Exempt bool
	Demand Demand
}

// Result is the number of seats of a level, and the target from which it was computed.
type Result struct {
	Seats  int
	Target float64
}

// Divide divides the sum of the nominal seats, which is a little more than the seats of the server, because
// nominal seats are rounded up. It returns the seats of each level, in the order of levels, and the fair fraction.
// A level that is not at one of its bounds gets its target times the fair fraction.
//
// The lower bound of a level is the smaller one of its nominal seats and its demand, but at least its minimum. So a
// level gets back what it lent as soon as it needs it. Exempt levels use what they need; only their lower bounds are
// taken from the sum.
func Divide(levels []Level) ([]Result, float64) {
	results := make([]Result, len(levels))
	var items []Item
	rest := 0.0
	for i, l := range levels {
		rest += float64(l.Bounds.Nominal)
		lower := max(float64(l.Bounds.Min), min(float64(l.Bounds.Nominal), l.Demand.Max))
		if l.Exempt {
			needed := max(lower, l.Demand.Max)
			results[i] = Result{Seats: int(math.Round(needed)), Target: needed}
			rest -= lower
			continue
		}
		results[i].Target = max(lower, l.Demand.Smoothed)
		items = append(items, Item{Lower: lower, Upper: max(lower, float64(l.Bounds.Max)), Target: results[i].Target})
	}
	fraction := Fraction(rest, items)
	n := 0
	for i, l := range levels {
		if !l.Exempt {
			results[i].Seats = int(math.Round(items[n].at(fraction)))
			n++
		}
	}
	return results, fraction
}

// Item is a part of a sum: a multiple of its target, but at least Lower and at most Upper.
type Item struct{ Lower, Upper, Target float64 }

func (i Item) at(fraction float64) float64 { return min(i.Upper, max(i.Lower, fraction*i.Target)) }

// Fraction returns the fraction at which the items add up to sum. If the lower bounds exceed the sum, it is 0. If
// the sum exceeds the upper bounds, it is the smallest fraction at which all items with a target are at their
// upper bounds.
//
// The sum of the items as a function of the fraction consists of straight lines, which meet where an item reaches a
// bound. Fraction goes from one such point to the next.
func Fraction(sum float64, items []Item) float64 {
	current, slope := 0.0, 0.0 // at the fraction
	type point struct{ fraction, slope float64 }
	var points []point
	for _, i := range items {
		current += i.Lower
		if i.Target > 0 && i.Upper > i.Lower {
			points = append(points, point{i.Lower / i.Target, i.Target}, point{i.Upper / i.Target, -i.Target})
		}
	}
	sort.Slice(points, func(a, b int) bool { return points[a].fraction < points[b].fraction })
	fraction := 0.0
	for _, p := range points {
		next := current + slope*(p.fraction-fraction)
		if next >= sum {
			break
		}
		current, fraction = next, p.fraction
		slope += p.slope
	}
	if current < sum && slope > 0 {
		fraction += (sum - current) / slope
	}
	return fraction
}
