package metrics

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestSet: a registry with a set as its only collector has every metric of the set, with its name, help, type, labels and
// buckets. Only metrics without labels have a series from the start.
func TestSet(t *testing.T) {
	inner, s := new(Set), new(Set)
	inner.Counter("i", "of inner")
	s.Register(inner)
	s.Counter("a", "of a")
	counters, gauges := s.Counters("b", "of b", "x", "y"), s.Gauges("c", "of c", "x")
	s.Histogram("d", "of d", []float64{1, 2})
	histograms := s.Histograms("e", "of e", nil, "x")
	durations, sizes := s.Durations("f", "of f", []float64{1}, "x"), s.Sizes("g", "of g", []float64{10}, "x")
	s.GaugeFunc("h", "of h", func() int64 { return 1 })
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s)
	want := []string{"a of a COUNTER", "d of d HISTOGRAM 1 2", "h of h GAUGE", "i of inner COUNTER"}
	if got := gathered(t, r); !slices.Equal(got, want) {
		t.Errorf("at the start: %q, want %q", got, want)
	}
	counters.WithLabelValues("1", "2").Inc()
	gauges.WithLabelValues("1").Set(1)
	histograms.WithLabelValues("1").Observe(1)
	durations.With("1").Observe(int64(time.Second))
	sizes.With("1").Observe(1)
	want = []string{
		"a of a COUNTER", "b of b COUNTER x=1 y=2", "c of c GAUGE x=1", "d of d HISTOGRAM 1 2",
		"e of e HISTOGRAM x=1 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10", "f of f HISTOGRAM x=1 1",
		"g of g HISTOGRAM x=1 10", "h of h GAUGE", "i of inner COUNTER",
	}
	if got := gathered(t, r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// gathered returns a line for each series: name, help, type, labels and buckets.
func gathered(t *testing.T, g prometheus.Gatherer) (lines []string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.Metric {
			line := fmt.Sprint(f.GetName(), " ", f.GetHelp(), " ", f.GetType())
			for _, label := range series.Label {
				line += " " + label.GetName() + "=" + label.GetValue()
			}
			for _, bucket := range series.GetHistogram().GetBucket() {
				line += fmt.Sprint(" ", bucket.GetUpperBound())
			}
			lines = append(lines, line)
		}
	}
	return lines
}
