package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestJudge: figures that stay, grow, grow once at the start, and saw up and down.
func TestJudge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return rng.NormFloat64() }
	for _, c := range []struct {
		name string
		at   func(i int) float64
		want string
	}{
		{"constant with noise", func(int) float64 { return 100 + 5*noise() }, "flat"},
		{"grows by a fifth", func(i int) float64 { return 100 + float64(i)*20/360 + 5*noise() }, "**grows**"},
		{"falls by a fifth", func(i int) float64 { return 100 - float64(i)*20/360 + 5*noise() }, "falls"},
		{"reaches its level in the first quarter", func(i int) float64 { return 100 * min(1, float64(i)/80) }, "flat"},
		{"saws", func(i int) float64 { return 100 + float64(i%37) }, "flat"},
		{"saws upwards", func(i int) float64 { return 100 + float64(i%37) + float64(i)/10 }, "**grows**"},
		{"has outliers at the end", func(i int) float64 { return 100 + max(0, float64(i-340))*50 }, "flat"},
		{"grows less than the floor", func(i int) float64 { return 1 + float64(i)/360 }, "flat"},
	} {
		var samples []sample
		for i := range 360 {
			samples = append(samples, sample{time.Duration(i) * 10 * time.Second, []float64{c.at(i)}})
		}
		if got := judge(column{floor: 2, judged: true}, samples, 0); got.verdict != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}
