package metrics

import "github.com/prometheus/client_golang/prometheus"

// OnDemand returns a collector that reads its values when metrics are requested. collect calls gauge for each series.
func OnDemand(
	collect func(gauge func(d *prometheus.Desc, value int64, labels ...string)), descriptions ...*prometheus.Desc,
) prometheus.Collector {
	return &onDemand{descriptions, collect}
}

type onDemand struct {
	descriptions []*prometheus.Desc
	collect      func(gauge func(d *prometheus.Desc, value int64, labels ...string))
}

// Describe implements prometheus.Collector.
func (d *onDemand) Describe(ch chan<- *prometheus.Desc) {
	for _, description := range d.descriptions {
		ch <- description
	}
}

// Collect implements prometheus.Collector.
func (d *onDemand) Collect(ch chan<- prometheus.Metric) {
	d.collect(func(description *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(value), labels...)
	})
}

// ByRequestKind returns a collector of the numbers that current returns for read-only and for mutating requests.
func ByRequestKind(name, help string, current func() (readOnly, mutating int64)) prometheus.Collector {
	requests := prometheus.NewDesc(name, help, []string{"request_kind"}, nil)
	return OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
		readOnly, mutating := current()
		gauge(requests, readOnly, "readOnly")
		gauge(requests, mutating, "mutating")
	}, requests)
}
