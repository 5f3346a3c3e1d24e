// Package pace sets how often the garbage collector runs, by how much memory is
// live: often enough to keep a large cache from doubling the process, seldom
// enough not to slow a small one. FreeWhenIdle gives the free memory of the heap
// back to the system while the process has little to do.
package pace

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// headroom is what may be allocated between two collections of a small heap.
	headroom = 36 << 20
	// leastPercent bounds the work of collecting a large one. What is cached is
	// bytes, which the collector does not look into.
	leastPercent = 25
	mostPercent  = 800

	liveMetric = "/gc/heap/live:bytes"
)

// Start begins to pace the collector of this process, unless GOGC or GOMEMLIMIT
// say how it is to run.
func Start(getenv func(string) string) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return
	}
	p := &pacer{sample: []metrics.Sample{{Name: liveMetric}}}
	p.adjust()
	watch(p)
}

// percent is how much the heap may grow over what is live before it is collected.
func percent(live uint64) int {
	if live == 0 {
		return mostPercent
	}
	return int(min(mostPercent, max(leastPercent, headroom*100/live)))
}

type pacer struct {
	sample  []metrics.Sample
	current int
}

func (p *pacer) adjust() {
	metrics.Read(p.sample)
	if next := percent(p.sample[0].Value.Uint64()); next != p.current {
		p.current = next
		debug.SetGCPercent(next)
	}
}

// watch runs adjust after each collection: the sentinel is found dead by one, and
// its finalizer sets out the next.
func watch(p *pacer) {
	sentinel := &struct{ _ [16]byte }{}
	runtime.SetFinalizer(sentinel, func(*struct{ _ [16]byte }) {
		p.adjust()
		watch(p)
	})
}
