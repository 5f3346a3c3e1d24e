package cache

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Stores has the metrics of the stores of a server and of their caches, by resource. For every kind of store, the
// metrics have the names of kube-apiserver's metrics of etcd and the watch cache. A nil Stores records nothing.
type Stores struct {
	durations *metrics.HistogramVec
	counters  [counterKinds]*prometheus.Desc
	lists     [listKinds]*prometheus.Desc
	states    [cacheStates]*prometheus.Desc
	requests  *prometheus.Desc
	failures  *prometheus.Desc
	waits     *metrics.HistogramVec
	// loads are the durations of loads, and listed are the durations of lists from the store.
	loads, listed *metrics.HistogramVec

	mu        sync.Mutex // guards resources
	resources map[groupResource]*Stored
}

// Counter is a number that is counted for a resource.
type Counter int

// These are the counters of a resource.
const (
	// EventsReceived counts changes that the store has sent.
	EventsReceived Counter = iota
	// CacheEventsReceived counts events that were added to the log of the cache.
	CacheEventsReceived
	// EventsDispatched counts events that watchers can read in the log of the cache.
	EventsDispatched
	// Initializations counts how often the cache began to follow a resource.
	Initializations
	// InitialEvents counts the events of the initial state that were sent to watchers.
	InitialEvents
	// Bookmarks counts the notifications in which etcd sends its revision.
	Bookmarks
	// CacheReturned counts the objects that were returned for lists from the cache.
	CacheReturned
	// LoadErrors counts how often the objects of a resource could not be read into memory.
	LoadErrors
	counterKinds
)

// counterNames are the names and descriptions of the counters.
var counterNames = [counterKinds][2]string{
	EventsReceived:      {"apiserver_storage_events_received_total", "[BETA] Number of etcd events received split by kind."},
	CacheEventsReceived: {"apiserver_watch_cache_events_received_total", "[ALPHA] Counter of events received in watch cache broken by resource type."},
	EventsDispatched:    {"apiserver_watch_cache_events_dispatched_total", "[ALPHA] Counter of events dispatched in watch cache broken by resource type."},
	Initializations:     {"apiserver_watch_cache_initializations_total", "[ALPHA] Counter of watch cache initializations broken by resource type."},
	InitialEvents:       {"apiserver_init_events_total", "[ALPHA] Counter of init events processed in watch cache broken by resource type."},
	Bookmarks:           {"etcd_bookmark_total", "[ALPHA] Number of etcd bookmarks (progress notify events) split by kind."},
	CacheReturned:       {"apiserver_cache_list_returned_objects_total", "[ALPHA] Number of objects returned for a LIST request from watch cache"},
	LoadErrors:          {"apiserver_watch_cache_initialization_errors_total", "[ALPHA] Counter of watch cache initialization errors broken by resource type."},
}

// These are the metrics of lists. They have additional labels: the source of the objects, or the index.
const (
	cacheLists = iota
	cacheFetched
	consistentReads
	lists
	listsFetched
	listsEvaluated
	listsReturned
	listKinds
)

// A source is where the objects of a list come from.
type source int

const (
	fromStore source = iota
	fromCache
	sources
)

// sourceNames are the values of the label storage. As in kube-apiserver, the store is "etcd", even if it is
// another store.
var sourceNames = [sources]string{"etcd", "watchcache"}

// These are the metrics of the state of a cache. cacheLoads is a counter, all others are gauges.
const (
	cacheRevision = iota
	cacheBytes
	cacheLoaded
	cacheLogEvents
	cacheLogBytes
	cacheCursors
	cacheInterests
	cacheLoads
	cacheStates
)

var stateNames = [cacheStates][2]string{
	cacheRevision: {"apiserver_watch_cache_resource_version", "[ALPHA] Current resource version of watch cache broken by " +
		"resource type. This is truncated to the 15 least significant digits."},
	cacheBytes:     {"apiserver_resource_size_estimate_bytes", "[ALPHA] Estimated size of stored objects in database. Estimate is based on sum of last observed sizes of serialized objects. In case of a fetching error, the value will be -1."},
	cacheLoaded:    {"keelson_cache_loaded", "Whether all objects of a resource are in memory (1), or only the log of their changes (0)."},
	cacheLogEvents: {"keelson_cache_log_events", "Number of changes of a resource in the log from which watches are served."},
	cacheLogBytes:  {"keelson_cache_log_bytes", "Bytes of memory that only the log of a resource needs."},
	cacheCursors:   {"keelson_cache_watches", "Number of open watches of a resource."},
	cacheInterests: {"keelson_cache_interests", "Number of different selections (namespace, name, labels, fields) of the open watches of a resource."},
	cacheLoads:     {"keelson_cache_loads_total", "Number of times that all objects of a resource were read into memory."},
}

// Operation is a request to a store.
type Operation int

// The operations.
const (
	GetOperation Operation = iota
	ListOperation
	CountOperation
	CreateOperation
	UpdateOperation
	DeleteOperation
	operations
)

var operationNames = [operations]string{"get", "list", "listWithCount", "create", "update", "delete"}

// groupResource names a resource.
type groupResource struct{ group, resource string }

// Stored has the metrics of one resource. A nil Stored records nothing.
type Stored struct {
	of       *Stores
	key      groupResource
	counters [counterKinds]count
	requests [operations]operation
	indexes  [sources]sync.Map // name of the index -> *indexCounts
	lists    [sources]listCounts
	// consistent counts the lists of the latest state that the cache has served.
	consistent count
	wait       atomic.Pointer[metrics.Histogram]
	load       atomic.Pointer[metrics.Histogram]
	listed     atomic.Pointer[metrics.Histogram]
	cache      atomic.Pointer[CacheReader]
}

// CacheState describes the state of one resource in the cache.
type CacheState struct {
	// Followed means that the cache has a log of the changes. If it is false, all other values are 0.
	Followed bool
	Loaded   bool  // all objects are in memory
	Revision int64 // of the last change
	Bytes    int64 // memory of the objects
	Events   int   // number in the log
	LogBytes int64 // memory that is used only because of the log
	Cursors  int   // number of open watches
	// Interests is the number of different selections of these watches.
	Interests int
	Loads     int64 // number of times that all objects were loaded
}

// CacheReader reads the state of a cache. It is a pointer to a function so that Unfollow can compare it.
type CacheReader func() CacheState

// Follow makes read the source of the metrics of the cache of the resource. It replaces an earlier source.
func (st *Stored) Follow(read *CacheReader) {
	if st != nil {
		st.cache.Store(read)
	}
}

// Unfollow removes read, unless another source has replaced it.
func (st *Stored) Unfollow(read *CacheReader) {
	if st != nil {
		st.cache.CompareAndSwap(read, nil)
	}
}

// count is a counter that is exported only after it was used. used is 1 after the first use, so that a value of 0
// is exported too.
type count struct{ used, value atomic.Int64 }

func (c *count) add(n int64) {
	if c.used.Load() == 0 {
		c.used.Store(1)
	}
	c.value.Add(n)
}

type operation struct {
	took   atomic.Pointer[metrics.Histogram]
	total  atomic.Int64
	failed atomic.Int64
}

type indexCounts struct{ lists, fetched atomic.Int64 }

// listCounts are the numbers of objects that were compared with the selectors of lists, and returned.
type listCounts struct{ evaluated, returned atomic.Int64 }

// NewStores registers and returns the metrics of stores. It may be called once.
func NewStores(m *metrics.Metrics) *Stores {
	labels := []string{"group", "resource"}
	withOperation := append([]string{"operation"}, labels...)
	withIndex := append(slices.Clone(labels), "index")
	withSource := append(slices.Clone(labels), "storage")
	withSourceIndex := append(slices.Clone(withSource), "index")
	s := &Stores{
		resources: map[groupResource]*Stored{},
		durations: m.Durations("etcd_request_duration_seconds", "[ALPHA] Etcd request latency in seconds for each "+
			"operation and object type.", metrics.DurationBuckets(), withOperation...),
		requests: prometheus.NewDesc("etcd_requests_total",
			"[ALPHA] Etcd request counts for each operation and object type.", withOperation, nil),
		failures: prometheus.NewDesc("etcd_request_errors_total",
			"[ALPHA] Etcd failed request counts for each operation and object type.", withOperation, nil),
		waits: m.Durations("apiserver_watch_cache_read_wait_seconds",
			"[ALPHA] Histogram of time spent waiting for a watch cache to become fresh.",
			[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3}, labels...),
	}
	s.loads = m.Durations("apiserver_watch_cache_initialization_duration_seconds",
		"[ALPHA] Histogram of watch cache initialization duration in seconds, broken by resource type.",
		[]float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600}, labels...)
	s.listed = m.Durations("apiserver_storage_list_duration_seconds",
		"[ALPHA] Latency of the storage layer GetList call in seconds, including object decode, split by whether etcd RangeStream "+
			"was used.", []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		"streamed", "group", "resource")
	for i, name := range counterNames {
		s.counters[i] = prometheus.NewDesc(name[0], name[1], labels, nil)
	}
	for i, name := range stateNames {
		s.states[i] = prometheus.NewDesc(name[0], name[1], labels, nil)
	}
	s.lists = [listKinds]*prometheus.Desc{
		cacheLists: prometheus.NewDesc(
			"apiserver_cache_list_total", "[ALPHA] Number of LIST requests served from watch cache", withIndex, nil),
		cacheFetched: prometheus.NewDesc("apiserver_cache_list_fetched_objects_total",
			"[ALPHA] Number of objects read from watch cache in the course of serving a LIST request", withIndex, nil),
		consistentReads: prometheus.NewDesc("apiserver_watch_cache_consistent_read_total",
			"[ALPHA] Counter for consistent reads from cache.", append(slices.Clone(labels), "success", "fallback"), nil),
		lists: prometheus.NewDesc(
			"apiserver_storage_list_total", "[ALPHA] Number of LIST requests served from storage", withSourceIndex, nil),
		listsFetched: prometheus.NewDesc("apiserver_storage_list_fetched_objects_total",
			"[ALPHA] Number of objects read from storage in the course of serving a LIST request", withSourceIndex, nil),
		listsEvaluated: prometheus.NewDesc("apiserver_storage_list_evaluated_objects_total",
			"[ALPHA] Number of objects tested in the course of serving a LIST request from storage", withSource, nil),
		listsReturned: prometheus.NewDesc("apiserver_storage_list_returned_objects_total",
			"[ALPHA] Number of objects returned for a LIST request from storage", withSource, nil),
	}
	m.Register(s)
	return s
}

// Resource returns the metrics of a resource.
func (s *Stores) Resource(group, resource string) *Stored {
	if s == nil {
		return nil
	}
	key := groupResource{group, resource}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[key]
	if r == nil {
		r = &Stored{of: s, key: key}
		s.resources[key] = r
	}
	return r
}

// Add adds n to a counter.
func (st *Stored) Add(c Counter, n int) {
	if st != nil {
		st.counters[c].add(int64(n))
	}
}

// Request records a request to the store, which began at start. err must be nil if the store has answered, even
// with a conflict.
func (st *Stored) Request(o Operation, start time.Time, err error) {
	if st == nil {
		return
	}
	op := &st.requests[o]
	took := op.took.Load()
	if took == nil {
		took = st.of.durations.With(operationNames[o], st.key.group, st.key.resource)
		op.took.Store(took)
	}
	took.Observe(int64(time.Since(start)))
	op.total.Add(1)
	if err != nil {
		op.failed.Add(1)
	}
}

// List records a list that began at start. fetched and returned are the numbers of objects that were read and
// returned.
func (st *Stored) List(cached bool, index string, start time.Time, fetched, returned int) {
	if st == nil {
		return
	}
	of := fromStore
	if cached {
		of = fromCache
		st.Add(CacheReturned, returned)
	} else {
		h := st.listed.Load()
		if h == nil {
			h = st.of.listed.With("false", st.key.group, st.key.resource) // false: no store streams a list
			st.listed.Store(h)
		}
		h.Observe(int64(time.Since(start)))
	}
	c, ok := st.indexes[of].Load(index)
	if !ok {
		c, _ = st.indexes[of].LoadOrStore(index, new(indexCounts))
	}
	c.(*indexCounts).lists.Add(1)
	c.(*indexCounts).fetched.Add(int64(fetched))
	st.lists[of].evaluated.Add(int64(fetched))
	st.lists[of].returned.Add(int64(returned))
}

// Loaded records that the cache follows a resource from now on, after it has read the resource for took.
func (st *Stored) Loaded(took time.Duration) {
	if st == nil {
		return
	}
	st.Add(Initializations, 1)
	h := st.load.Load()
	if h == nil {
		h = st.of.loads.With(st.key.group, st.key.resource)
		st.load.Store(h)
	}
	h.Observe(int64(took))
}

// Fresh records that the cache has served the latest state. waited is the time that it waited for this state.
func (st *Stored) Fresh(waited time.Duration) {
	if st == nil {
		return
	}
	st.consistent.add(1)
	h := st.wait.Load()
	if h == nil {
		h = st.of.waits.With(st.key.group, st.key.resource)
		st.wait.Store(h)
	}
	h.Observe(int64(waited))
}

// Describe implements prometheus.Collector.
func (s *Stores) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(s.counters[:], s.lists[:], s.states[:], []*prometheus.Desc{s.requests, s.failures}) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Stores) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	resources := make([]*Stored, 0, len(s.resources))
	for _, r := range s.resources {
		resources = append(resources, r)
	}
	s.mu.Unlock()
	for _, r := range resources {
		r.collect(func(d *prometheus.Desc, value int64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
		})
		if read := r.cache.Load(); read != nil {
			r.collectState((*read)(), ch)
		}
	}
}

func (st *Stored) collect(counter func(d *prometheus.Desc, value int64, labels ...string)) {
	s, group, resource := st.of, st.key.group, st.key.resource
	for i := range st.counters {
		if c := &st.counters[i]; c.used.Load() != 0 {
			counter(s.counters[i], c.value.Load(), group, resource)
		}
	}
	for o := range st.requests {
		if op := &st.requests[o]; op.total.Load() != 0 {
			counter(s.requests, op.total.Load(), operationNames[o], group, resource)
			if failed := op.failed.Load(); failed != 0 {
				counter(s.failures, failed, operationNames[o], group, resource)
			}
		}
	}
	for of, name := range sourceNames {
		used := false
		st.indexes[of].Range(func(index, value any) bool {
			used = true
			c := value.(*indexCounts)
			counter(s.lists[lists], c.lists.Load(), group, resource, name, index.(string))
			counter(s.lists[listsFetched], c.fetched.Load(), group, resource, name, index.(string))
			if source(of) == fromCache {
				counter(s.lists[cacheLists], c.lists.Load(), group, resource, index.(string))
				counter(s.lists[cacheFetched], c.fetched.Load(), group, resource, index.(string))
			}
			return true
		})
		if used {
			counter(s.lists[listsEvaluated], st.lists[of].evaluated.Load(), group, resource, name)
			counter(s.lists[listsReturned], st.lists[of].returned.Load(), group, resource, name)
		}
	}
	if n := st.consistent.value.Load(); n != 0 {
		counter(s.lists[consistentReads], n, group, resource, "true", "false")
	}
}

// collectState sends the gauges of a cache.
func (st *Stored) collectState(state CacheState, ch chan<- prometheus.Metric) {
	if !state.Followed {
		return
	}
	const mostDigits = 1_000_000_000_000_000
	loaded := int64(0)
	if state.Loaded {
		loaded = 1
	}
	values := [cacheStates]int64{
		cacheRevision: state.Revision % mostDigits, cacheBytes: state.Bytes, cacheLoaded: loaded,
		cacheLogEvents: int64(state.Events), cacheLogBytes: state.LogBytes, cacheCursors: int64(state.Cursors),
		cacheInterests: int64(state.Interests), cacheLoads: state.Loads,
	}
	for i, value := range values {
		kind := prometheus.GaugeValue
		switch {
		case i == cacheLoads:
			kind = prometheus.CounterValue
		case i == cacheBytes && !state.Loaded:
			continue // the size is known only for objects in memory
		}
		ch <- prometheus.MustNewConstMetric(st.of.states[i], kind, float64(value), st.key.group, st.key.resource)
	}
}
