// Package pace sets how often the garbage collector runs, by the size of the live heap: often enough that a large cache
// does not double the memory of the process, and seldom enough not to slow a small one down. FreeWhenIdle returns the
// free memory of the heap to the operating system while the process is idle.
//
// Example: with a live heap of 48 MiB, GOGC is 36 MiB * 100 / 48 MiB = 75, so the heap grows to 84 MiB between
// collections.
package pace

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// headroom is the number of bytes that may be allocated between two collections of a small heap.
	headroom = 36 << 20
	// minPercent bounds the cost of collecting a large heap. Most of it are cached bytes, which the collector does not
	// scan.
	minPercent = 25
	maxPercent = 800

	liveMetric = "/gc/heap/live:bytes"
)

// limitShare is the share of what the control groups allow that the Go runtime may use, in percent. The rest is for the
// pages of the program and for what the runtime gives back late.
const limitShare = 90

// Start begins to adjust GOGC of this process, unless the environment contains GOGC. If control groups limit its memory
// and the environment does not contain GOMEMLIMIT, it sets the memory limit of the runtime, so that garbage is collected
// more often before the kernel kills the process.
func Start(getenv func(string) string, memory Memory) {
	if getenv("GOMEMLIMIT") == "" && memory.Limit > 0 {
		debug.SetMemoryLimit(memory.Limit / 100 * limitShare)
	}
	if getenv("GOGC") != "" {
		return
	}
	p := &pacer{sample: []metrics.Sample{{Name: liveMetric}}}
	p.adjust()
	adjustAfterEachCollection(p)
}

// gcPercent returns the value of GOGC for a live heap of that size.
func gcPercent(live uint64) int {
	if live == 0 {
		return maxPercent
	}
	return int(min(maxPercent, max(minPercent, headroom*100/live)))
}

// pacer sets GOGC when it has changed.
type pacer struct {
	sample  []metrics.Sample
	current int
}

func (p *pacer) adjust() {
	metrics.Read(p.sample)
	if next := gcPercent(p.sample[0].Value.Uint64()); next != p.current {
		p.current = next
		debug.SetGCPercent(next)
	}
}

// adjustAfterEachCollection runs adjust after each collection. The collector finds the sentinel unreachable and runs
// its finalizer, which creates the next sentinel.
func adjustAfterEachCollection(p *pacer) {
	sentinel := &struct{ _ [16]byte }{}
	runtime.SetFinalizer(sentinel, func(*struct{ _ [16]byte }) {
		p.adjust()
		adjustAfterEachCollection(p)
	})
}
