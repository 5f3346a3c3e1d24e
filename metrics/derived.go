package metrics

import (
	"sort"

	"github.com/prometheus/client_golang/prometheus"
)

// derived is a collector of figures that are read when somebody asks for them.
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

// InFlight reports the bounded requests that are being served, which current returns.
func InFlight(current func() (readOnly, mutating int64)) prometheus.Collector {
	requests := prometheus.NewDesc("apiserver_current_inflight_requests",
		"[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
		[]string{"request_kind"}, nil)
	return &onDemand{[]*prometheus.Desc{requests}, func(gauge func(*prometheus.Desc, int64, ...string)) {
		readOnly, mutating := current()
		gauge(requests, readOnly, "readOnly")
		gauge(requests, mutating, "mutating")
	}}
}

// StoreSize reports the bytes that a store takes. cluster names the store.
func StoreSize(cluster string, size func() int64) prometheus.Collector {
	return storeGauge("apiserver_storage_size_bytes",
		"[STABLE] Size of the storage database file physically allocated in bytes.", cluster, size)
}

// StoreDamage reports how many files of a store were found to be damaged since it was
// opened. cluster names the store.
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

// GroupResource names a resource.
type GroupResource struct{ Group, Resource string }

// Objects reports the number of stored objects by resource, where count knows it
// without reading.
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
