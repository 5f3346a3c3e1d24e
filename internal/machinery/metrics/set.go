package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Set makes metrics, and is the prometheus.Collector of all that it has made. The zero value is an empty set.
//
// Methods named in the singular make a metric without labels, which has its series from the start. Those named in the
// plural make a metric whose series begin when their label values are first used. Buckets that are nil are
// prometheus.DefBuckets.
type Set struct {
	mu      sync.Mutex // guards members
	members []prometheus.Collector
}

// Register adds collectors that the set has not made.
func (s *Set) Register(c ...prometheus.Collector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, c...)
}

func added[C prometheus.Collector](s *Set, c C) C {
	s.Register(c)
	return c
}

// Counter makes a counter.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return added(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// Counters makes counters with labels.
func (s *Set) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return added(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

// Gauges makes gauges with labels.
func (s *Set) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return added(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

// GaugeFunc makes a gauge that calls value whenever metrics are read.
func (s *Set) GaugeFunc(name, help string, value func() int64) {
	o := prometheus.GaugeOpts{Name: name, Help: help}
	s.Register(prometheus.NewGaugeFunc(o, func() float64 { return float64(value()) }))
}

// Histogram makes a histogram.
func (s *Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return added(s, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

// Histograms makes histograms with labels.
func (s *Set) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return added(s, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// Durations makes histograms of durations in seconds, which are observed in nanoseconds.
func (s *Set) Durations(name, help string, buckets []float64, labels ...string) *HistogramVec {
	return added(s, newHistograms(name, help, float64(time.Nanosecond)/float64(time.Second), buckets, labels))
}

// Sizes makes histograms of numbers of bytes.
func (s *Set) Sizes(name, help string, buckets []float64, labels ...string) *HistogramVec {
	return added(s, newHistograms(name, help, 1, buckets, labels))
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.collectors() {
		c.Collect(ch)
	}
}

func (s *Set) collectors() []prometheus.Collector {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[:len(s.members):len(s.members)]
}
