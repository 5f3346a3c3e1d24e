package flowcontrol

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// prefix begins the names of the metrics.
const prefix = "apiserver_flowcontrol_"

// collector reads the metrics from the Controller when they are requested. The labels flow_schema and priority_level have
// the names of configured objects; the series of an object end with it.
type collector struct {
	c       *Controller
	metrics map[string]*prometheus.Desc // by the name without prefix
}

// QueueCollector returns the metric of requests that wait, by whether they only read.
func (c *Controller) QueueCollector() prometheus.Collector {
	return metrics.ByRequestKind("apiserver_current_inqueue_requests",
		"[ALPHA] Maximal number of queued requests in this apiserver per request kind in last second.", c.Queued)
}

// Collector returns the other metrics.
func (c *Controller) Collector() prometheus.Collector {
	m := &collector{c: c, metrics: map[string]*prometheus.Desc{}}
	for _, d := range descriptions() {
		m.metrics[d.name] = prometheus.NewDesc(prefix+d.name, d.help, d.labels, nil)
	}
	return m
}

type description struct {
	name, help string
	labels     []string
}

// descriptions are the metrics of kube-apiserver, with its help texts.
func descriptions() []description {
	of := []string{"flow_schema", "priority_level"}
	level := []string{"priority_level"}
	return []description{
		{"rejected_requests_total", "[BETA] Number of requests rejected by API Priority and Fairness subsystem",
			append(of[:2:2], "reason")},
		{"dispatched_requests_total", "[BETA] Number of requests executed by API Priority and Fairness subsystem", of},
		{"current_inqueue_requests", "[BETA] Number of requests currently pending in queues of the API Priority and Fairness " +
			"subsystem", of},
		{"current_inqueue_seats", "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness " +
			"subsystem", of},
		{"current_executing_requests", "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution " +
			"stage in the API Priority and Fairness subsystem", of},
		{"current_executing_seats", "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage " +
			"for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem", of},
		{"request_wait_duration_seconds", "[BETA] Length of time a request spent waiting in its queue",
			[]string{"execute", "flow_schema", "priority_level"}},
		{"request_execution_seconds", "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of " +
			"request execution in the API Priority and Fairness subsystem", append(of[:2:2], "type")},
		{"request_queue_length_after_enqueue", "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by " +
			"each request after it is enqueued", of},
		{"work_estimated_seats", "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with " +
			"requests in API Priority and Fairness", of},
		{"watch_count_samples", "[ALPHA] count of watchers for mutating requests in API Priority and Fairness", of},
		{"nominal_limit_seats", "[BETA] Nominal number of execution seats configured for each priority level", level},
		{"lower_limit_seats", "[ALPHA] Configured lower bound on number of execution seats available to each priority level",
			level},
		{"upper_limit_seats", "[ALPHA] Configured upper bound on number of execution seats available to each priority level",
			level},
		{"current_limit_seats", "[ALPHA] current derived number of execution seats available to each priority level", level},
		{"target_seats", "[ALPHA] Seat allocation targets", level},
		{"demand_seats_high_watermark", "[ALPHA] High watermark, over last adjustment period, of demand_seats", level},
		{"demand_seats_average", "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats", level},
		{"demand_seats_stdev", "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats", level},
		{"demand_seats_smoothed", "[ALPHA] Smoothed seat demands", level},
		{"seat_fair_frac", "[ALPHA] Fair fraction of server's concurrency to allocate to each priority level that can use it",
			nil},
		{"current_r", "[ALPHA] R(time of last change)", level},
		{"dispatch_r", "[ALPHA] R(time of last dispatch)", level},
		{"latest_s", "[ALPHA] S(most recently dispatched request)", level},
		{"next_s_bounds", "[ALPHA] min and max, over queues, of S(oldest waiting request in queue)", append(level[:1:1], "bound")},
		{"next_discounted_s_bounds", "[ALPHA] min and max, over queues, of S(oldest waiting request in queue) - estimated work " +
			"in progress", append(level[:1:1], "bound")},
		{"epoch_advance_total", "[ALPHA] Number of times the queueset's progress meter jumped backward",
			append(level[:1:1], "success")},
		{"demand_seats", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of (the number of seats each " +
			"priority level could use) / (nominal number of seats for that level)", level},
		{"priority_level_seat_utilization", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of " +
			"utilization of seats for any stage of execution (but only initial stage for WATCHes)", []string{"phase", level[0]}},
		{"priority_level_request_utilization", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of number " +
			"of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for " +
			"WATCHes)", []string{"phase", level[0]}},
		{"read_vs_write_current_requests", "EXPERIMENTAL: [ALPHA] Observations, at the end of every nanosecond, of the number " +
			"of requests (as a fraction of the relevant limit) waiting or in regular stage of execution",
			[]string{"phase", "request_kind"}},
	}
}

// Describe implements prometheus.Collector.
func (co *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range co.metrics {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (co *collector) Collect(ch chan<- prometheus.Metric) {
	e := exporter{collector: co}
	flows := map[*level][]*flow{}
	co.c.mu.Lock()
	for _, f := range co.c.flows {
		flows[f.level] = append(flows[f.level], f)
	}
	e.gauge("seat_fair_frac", co.c.fraction)
	co.c.mu.Unlock()
	co.c.snapshot(func(l *level, now time.Duration) {
		e.level(l, now)
		for _, f := range flows[l] {
			e.flow(f)
		}
	})
	for k, counts := range co.c.kinds {
		_, times := counts.snapshot(co.c.now())
		for p := range times {
			e.histogram("read_vs_write_current_requests", &times[p], phase(p).String(), kind(k).String())
		}
	}
	for _, metric := range e.all { // no level is locked while the receiver is slow
		ch <- metric
	}
}

// exporter collects metrics.
type exporter struct {
	*collector
	all []prometheus.Metric
}

func (e *exporter) gauge(name string, value float64, labels ...string) {
	e.all = append(e.all, prometheus.MustNewConstMetric(e.metrics[name], prometheus.GaugeValue, value, labels...))
}

func (e *exporter) counter(name string, value int64, labels ...string) {
	e.all = append(e.all, prometheus.MustNewConstMetric(e.metrics[name], prometheus.CounterValue, float64(value), labels...))
}

// histogram adds a histogram, unless it was never used.
func (e *exporter) histogram(name string, h *fairqueue.Histogram, labels ...string) {
	if h.Bounds == nil {
		return
	}
	buckets, count := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		count += uint64(h.Weights[i])
		buckets[bound] = count
	}
	count += uint64(h.Weights[len(h.Bounds)])
	e.all = append(e.all, prometheus.MustNewConstHistogram(e.metrics[name], count, h.Sum, buckets, labels...))
}

func (e *exporter) level(l *level, now time.Duration) {
	usage := l.queues.Usage(now)
	r, epochs := l.queues.VirtualTime()
	for name, value := range map[string]float64{
		"nominal_limit_seats": float64(l.bounds.Nominal), "lower_limit_seats": float64(l.bounds.Min),
		"upper_limit_seats": float64(l.bounds.Max), "current_limit_seats": float64(l.assigned), "target_seats": l.target,
		"demand_seats_high_watermark": l.demand.Max, "demand_seats_average": l.demand.Average,
		"demand_seats_stdev": l.demand.Deviation, "demand_seats_smoothed": l.demand.Smoothed, "current_r": r,
	} {
		e.gauge(name, value, l.name)
	}
	if d, ok := l.queues.Dispatch(); ok {
		e.gauge("dispatch_r", d.R, l.name)
		e.gauge("latest_s", d.S, l.name)
		e.gauge("next_s_bounds", d.First, l.name, "min")
		e.gauge("next_s_bounds", d.Last, l.name, "max")
		e.gauge("next_discounted_s_bounds", d.FirstDiscounted, l.name, "min")
		e.gauge("next_discounted_s_bounds", d.LastDiscounted, l.name, "max")
	}
	if epochs > 0 {
		e.counter("epoch_advance_total", epochs, l.name, "true")
	}
	e.histogram("demand_seats", &usage.Demand, l.name)
	e.histogram("priority_level_seat_utilization", &usage.Seats, "executing", l.name)
	e.histogram("priority_level_request_utilization", &usage.Executing, "executing", l.name)
	e.histogram("priority_level_request_utilization", &usage.Waiting, "waiting", l.name)
}

func (e *exporter) flow(f *flow) {
	of := []string{f.schema, f.level.name}
	for r, n := range f.rejected {
		if n > 0 {
			e.counter("rejected_requests_total", n, append(of[:2:2], reason(r).String())...)
		}
	}
	if f.widths.Bounds == nil {
		return // no request has matched it
	}
	e.counter("dispatched_requests_total", f.dispatched, of...)
	e.gauge("current_inqueue_requests", float64(f.waiting), of...)
	e.gauge("current_inqueue_seats", float64(f.waitingSeats), of...)
	e.gauge("current_executing_requests", float64(f.executing), of...)
	e.gauge("current_executing_seats", float64(f.seats), of...)
	e.histogram("request_wait_duration_seconds", &f.waits[0], "false", of[0], of[1])
	e.histogram("request_wait_duration_seconds", &f.waits[1], "true", of[0], of[1])
	e.histogram("request_execution_seconds", &f.executions[0], append(of[:2:2], "regular")...)
	e.histogram("request_execution_seconds", &f.executions[1], append(of[:2:2], "watch")...)
	e.histogram("request_queue_length_after_enqueue", &f.lengths, of...)
	e.histogram("work_estimated_seats", &f.widths, of...)
	e.histogram("watch_count_samples", &f.watchers, of...)
}
