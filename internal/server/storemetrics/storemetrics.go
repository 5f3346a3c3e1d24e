// Package storemetrics has the metrics of stores and caches whose values are computed when they are requested.
package storemetrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
)

// CacheMemory returns the collectors of the memory of the caches: the budget, the bytes in use and the bytes that
// were dropped. The label part says what the bytes are for: objects, encodings or logs.
func CacheMemory(usage func() cache.Usage) []prometheus.Collector {
	budget := prometheus.NewDesc("keelson_cache_budget_bytes", "Bytes of memory that the caches may use (--cache-memory).",
		nil, nil)
	used := prometheus.NewDesc("keelson_cache_bytes", "Bytes of memory that the caches use, by what it is for: objects, "+
		"encodings of objects and of parts of lists, logs of changes.", []string{"part"}, nil)
	dropped := func(part string, bytes func(cache.Usage) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keelson_cache_dropped_bytes_total", ConstLabels: prometheus.Labels{"part": part},
			Help: "Bytes that the caches have given up to make room, or because objects were seldom read.",
		}, func() float64 { return float64(bytes(usage())) })
	}
	return []prometheus.Collector{
		metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
			u := usage()
			gauge(budget, u.Budget)
			gauge(used, u.Objects, "objects")
			gauge(used, u.Encodings, "encodings")
			gauge(used, u.Logs, "logs")
		}, budget, used),
		dropped("objects", func(u cache.Usage) int64 { return u.DroppedObjects }),
		dropped("encodings", func(u cache.Usage) int64 { return u.DroppedEncodings }),
	}
}

// Space returns collectors of the free space that a store has.
func Space(space func() storage.Space) []prometheus.Collector {
	available := prometheus.NewDesc("keelson_storage_available_bytes", "Bytes of free disk space that the store may use; "+
		"missing if that is not known.", nil, nil)
	reserve := prometheus.NewDesc("keelson_storage_reserve_bytes", "Bytes of free disk space below which the store "+
		"refuses creates and updates; below a quarter of it, deletions too.", nil, nil)
	low := prometheus.NewDesc("keelson_storage_low_space", "Whether the store refuses writes because there is too little "+
		"free disk space (1).", nil, nil)
	return []prometheus.Collector{
		metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
			s := space()
			if s.Available >= 0 {
				gauge(available, s.Available)
			}
			gauge(reserve, s.Reserve)
			if s.Low {
				gauge(low, 1)
			} else {
				gauge(low, 0)
			}
		}, available, reserve, low),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keelson_storage_refused_writes_total",
			Help: "Number of writes that the store refused because there was too little free disk space.",
		}, func() float64 { return float64(space().Refused) }),
	}
}

// Gauge returns a collector of a number that a store knows. cluster is the name of the store.
func Gauge(name, help, cluster string, value func() int64) prometheus.Collector {
	description := prometheus.NewDesc(name, help, []string{"storage_cluster_id"}, nil)
	return metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
		gauge(description, value(), cluster)
	}, description)
}

// Objects returns a collector of the numbers of stored objects by resource. count returns only resources whose
// number is known without reading objects.
func Objects(count func() map[schema.GroupResource]int64) prometheus.Collector {
	byName := prometheus.NewDesc("apiserver_storage_objects",
		"[STABLE] [DEPRECATED, consider using apiserver_resource_objects instead] Number of "+
			"stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.",
		[]string{"resource"}, nil)
	byGroup := prometheus.NewDesc("apiserver_resource_objects",
		"[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the "+
			"value will be -1.",
		[]string{"group", "resource"}, nil)
	return metrics.OnDemand(func(gauge func(*prometheus.Desc, int64, ...string)) {
		counts := count()
		for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b schema.GroupResource) int {
			return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group))
		}) {
			name := k.Resource
			if k.Group != "" {
				name += "." + k.Group
			}
			gauge(byName, counts[k], name)
			gauge(byGroup, counts[k], k.Group, k.Resource)
		}
	}, byName, byGroup)
}

// GivenUp returns a collector of the history that the store dropped before its retention time was over.
func GivenUp(h storage.History) prometheus.Collector { return givenUp{h} }

type givenUp struct{ history storage.History }

var givenUpBytes = prometheus.NewDesc("keelson_history_given_up_bytes_total", "Bytes of old versions that were given up before their time "+
	"because too much was kept, by the namespace whose they were, or the resource if it has none.", []string{"namespace"}, nil)

// Describe implements prometheus.Collector.
func (givenUp) Describe(ch chan<- *prometheus.Desc) { ch <- givenUpBytes }

// Collect implements prometheus.Collector.
func (g givenUp) Collect(ch chan<- prometheus.Metric) {
	for share, bytes := range g.history.Kept().GivenUp {
		ch <- prometheus.MustNewConstMetric(givenUpBytes, prometheus.CounterValue, float64(bytes), share)
	}
}
