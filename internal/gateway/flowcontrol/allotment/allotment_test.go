package allotment

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
)

// bisect is a slow Fraction: it halves an interval.
func bisect(sum float64, items []Item) float64 {
	low, high := 0.0, 1e6
	for range 200 {
		middle, n := (low+high)/2, 0.0
		for _, i := range items {
			n += i.at(middle)
		}
		if n < sum {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// TestFractionAndTwin compares Fraction with a slow implementation.
func TestFractionAndTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		var items []Item
		lower, upper := 0.0, 0.0
		for range 1 + random.IntN(8) {
			i := Item{Lower: float64(random.IntN(20)), Target: float64(1 + random.IntN(50))}
			i.Upper = i.Lower + float64(random.IntN(40))
			items = append(items, i)
			lower, upper = lower+i.Lower, upper+i.Upper
		}
		sum := lower + random.Float64()*(upper-lower)*1.1
		got, want := 0.0, 0.0
		fraction, slow := Fraction(sum, items), bisect(sum, items)
		for _, i := range items {
			got, want = got+i.at(fraction), want+i.at(slow)
		}
		if math.Abs(got-want) > 1e-6 || math.Abs(got-min(sum, upper)) > 1e-6 {
			t.Fatalf("%v of %+v: at %v %v, at %v %v", sum, items, fraction, got, slow, want)
		}
	}
	if got := Fraction(1, []Item{{Lower: 5, Upper: 6, Target: 5}}); got != 0 {
		t.Errorf("%v", got)
	}
}

// TestKubeAPIServersNumbers computes what kube-apiserver 1.36.3 shows in its metrics with 24 seats, while one level had
// a demand and the others had none.
func TestKubeAPIServersNumbers(t *testing.T) {
	const seats, allShares = 24, 245
	levels := map[string]Shares{
		"catch-all": {5, 0, nil}, "global-default": {20, 50, nil}, "leader-election": {10, 0, nil}, "node-high": {40, 25, nil},
		"system": {30, 33, nil}, "workload-high": {40, 50, nil}, "workload-low": {100, 90, nil},
	}
	names := []string{
		"catch-all", "global-default", "leader-election", "node-high", "system", "workload-high", "workload-low"}
	var list []Level
	for _, name := range names {
		list = append(list, Level{Bounds: levels[name].Of(allShares, seats)})
	}
	list = append(list, Level{Bounds: Shares{}.Of(allShares, seats), Exempt: true})
	if b := list[1].Bounds; b != (Bounds{2, 1, 26}) {
		t.Errorf("global-default: %+v", b)
	}
	if b := list[6].Bounds; b != (Bounds{10, 1, 34}) {
		t.Errorf("workload-low: %+v", b)
	}
	list[1].Demand.Add(fairqueue.Demand{Max: 41, Average: 2.9061133795136422, Deviation: 10.00050648793302})
	list[7].Demand.Add(fairqueue.Demand{Max: 1})
	if got := list[1].Demand.Smoothed; math.Abs(got-12.906619867446661) > 1e-9 {
		t.Errorf("smoothed %v", got)
	}
	results, fraction := Divide(list)
	if math.Abs(fraction-1.0913875615288098) > 1e-9 {
		t.Errorf("fair fraction %v", fraction)
	}
	for i, want := range []int{1, 14, 1, 3, 2, 2, 1, 1} {
		if results[i].Seats != want {
			t.Errorf("%d: %+v, want %d", i, results[i], want)
		}
	}
}

// TestLentSeatsComeBack has a level that lends, and takes its seats back when it needs them.
func TestLentSeatsComeBack(t *testing.T) {
	bounds := Shares{Nominal: 50, LendablePercent: 80}.Of(100, 100)
	a, b := Level{Bounds: bounds}, Level{Bounds: bounds}
	a.Demand.Add(fairqueue.Demand{Max: 50, Average: 50})
	for range 300 {
		a.Demand.Add(fairqueue.Demand{})
		b.Demand.Add(fairqueue.Demand{Max: 500, Average: 500})
	}
	results, _ := Divide([]Level{a, b})
	if results[0].Seats != 10 || results[1].Seats != 90 {
		t.Errorf("lent: %+v", results)
	}
	a.Demand.Add(fairqueue.Demand{Max: 60, Average: 60})
	if results, _ = Divide([]Level{a, b}); results[0].Seats != 50 || results[1].Seats != 50 {
		t.Errorf("after that: %+v", results)
	}
}
