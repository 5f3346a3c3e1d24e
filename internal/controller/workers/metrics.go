package workers

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Metrics has the metrics of the queues of controllers, by the name of the queue. It implements
// workqueue.MetricsProvider.
type Metrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	waited, worked             *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*Metrics)(nil)

// NewMetrics registers and returns the metrics of queues. It may be called once.
func NewMetrics(m *metrics.Metrics) *Metrics {
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 10)
	return &Metrics{
		depth: m.Gauges("workqueue_depth", "[BETA] Current depth of workqueue", "name"),
		unfinished: m.Gauges("workqueue_unfinished_work_seconds", "[BETA] How many seconds of work has done that is "+
			"in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can "+
			"deduce the number of stuck threads by observing the rate at which this increases.", "name"),
		longest: m.Gauges("workqueue_longest_running_processor_seconds",
			"[BETA] How many seconds has the longest running processor for workqueue been running.", "name"),
		adds:    m.Counters("workqueue_adds_total", "[BETA] Total number of adds handled by workqueue", "name"),
		retries: m.Counters("workqueue_retries_total", "[BETA] Total number of retries handled by workqueue", "name"),
		waited: m.Histograms("workqueue_queue_duration_seconds",
			"[BETA] How long in seconds an item stays in workqueue before being requested.", buckets, "name"),
		worked: m.Histograms("workqueue_work_duration_seconds",
			"[BETA] How long in seconds processing an item from workqueue takes.", buckets, "name"),
	}
}

// NewDepthMetric implements workqueue.MetricsProvider. The other methods named New...Metric do too.
func (m *Metrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

// NewAddsMetric returns the counter of items that were added.
func (m *Metrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

// NewLatencyMetric returns the histogram of the times that items wait.
func (m *Metrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.waited.WithLabelValues(name)
}

// NewWorkDurationMetric returns the histogram of the times that the handling of items takes.
func (m *Metrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.worked.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric returns the gauge for the time that the handling of items has taken so far,
// summed over the items that are being handled.
func (m *Metrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric returns the gauge for the longest time that an item has been handled so
// far, among the items that are being handled.
func (m *Metrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

// NewRetriesMetric returns the counter of items that were added again after an error.
func (m *Metrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
