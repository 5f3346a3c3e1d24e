package metrics

import (
	"sort"

	"github.com/prometheus/client_golang/prometheus"
)

// onDemand is a collector that reads its values when metrics are requested.
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

// InFlight returns a collector of the numbers of requests in flight, which current returns.
func InFlight(current func() (readOnly, mutating int64)) prometheus.Collector {
	return byRequestKind("apiserver_current_inflight_requests", "[STABLE] Maximal number of currently used inflight "+
		"request limit of this apiserver per request kind in last second.", current)
}

// InQueue returns a collector of the numbers of requests that wait for API priority and fairness, which current returns.
func InQueue(current func() (readOnly, mutating int64)) prometheus.Collector {
	return byRequestKind("apiserver_current_inqueue_requests",
		"[ALPHA] Maximal number of queued requests in this apiserver per request kind in last second.", current)
}

func byRequestKind(name, help string, current func() (readOnly, mutating int64)) prometheus.Collector {
	requests := prometheus.NewDesc(name, help, []string{"request_kind"}, nil)
	return &onDemand{[]*prometheus.Desc{requests}, func(gauge func(*prometheus.Desc, int64, ...string)) {
		readOnly, mutating := current()
		gauge(requests, readOnly, "readOnly")
		gauge(requests, mutating, "mutating")
	}}
}

// StoreSize returns a collector of the size of a store in bytes. cluster is the name of the
// store.
func StoreSize(cluster string, size func() int64) prometheus.Collector {
	return storeGauge("apiserver_storage_size_bytes",
		"[STABLE] Size of the storage database file physically allocated in bytes.", cluster, size)
}

// StoreDamage returns a collector of how many damaged files of a store were found since it was
// opened. cluster is the name of the store.
func StoreDamage(cluster string, files func() int64) prometheus.Collector {
	return storeGauge("apiserver_storage_damaged_files",
		"[ALPHA] Number of files of the store in which damage was met since it was opened.", cluster, files)
}

func storeGauge(name, help, cluster string, value func() int64) prometheus.Collector {
	description := prometheus.NewDesc(name, help, []string{"storage_cluster_id"}, nil)
	return &onDemand{[]*prometheus.Desc{description}, func(gauge func(*prometheus.Desc, int64, ...string)) {
		gauge(description, value(), cluster)
	}}
}

// Gauge is a number without labels that is read when metrics are requested.
type Gauge struct {
	Name, Help string
	Value      func() int64
}

// Gauges returns a collector of gauges.
func Gauges(gauges ...Gauge) prometheus.Collector {
	d := &onDemand{}
	for _, g := range gauges {
		d.descriptions = append(d.descriptions, prometheus.NewDesc(g.Name, g.Help, nil, nil))
	}
	d.collect = func(gauge func(*prometheus.Desc, int64, ...string)) {
		for i, g := range gauges {
			gauge(d.descriptions[i], g.Value())
		}
	}
	return d
}

// GroupResource names a resource.
type GroupResource struct{ Group, Resource string }

// Objects returns a collector of the numbers of stored objects by resource, for the resources
// where count knows the number without reading objects.
func Objects(count func() map[GroupResource]int64) prometheus.Collector {
	byName := prometheus.NewDesc("apiserver_storage_objects",
		"[STABLE] (Deprecated since 1.34.0) [DEPRECATED, consider using apiserver_resource_objects instead] Number of "+
			"stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
		[]string{"resource"}, nil)
	byGroup := prometheus.NewDesc("apiserver_resource_objects",
		"[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the "+
			"value will be -1.",
		[]string{"group", "resource"}, nil)
	return &onDemand{[]*prometheus.Desc{byName, byGroup}, func(gauge func(*prometheus.Desc, int64, ...string)) {
		counts := count()
		keys := make([]GroupResource, 0, len(counts))
		for k := range counts {
			keys = append(keys, k)
		}
		sort.Slice(keys, func(i, j int) bool {
			return keys[i].Resource < keys[j].Resource || keys[i].Resource == keys[j].Resource && keys[i].Group < keys[j].Group
		})
		for _, k := range keys {
			name := k.Resource
			if k.Group != "" {
				name += "." + k.Group
			}
			gauge(byName, counts[k], name)
			gauge(byGroup, counts[k], k.Group, k.Resource)
		}
	}}
}
