// Package pace sets how often the garbage collector runs: often enough that a large cache does not double the memory of the
// process, and seldom enough, within bounds, that collecting takes a small part of the processor time.
// FreeWhenIdle returns the free memory of the heap to the operating system while the process is idle.
//
// Example: with a live heap of 48 MiB and a headroom of 36 MiB, GOGC is 36 MiB * 100 / 48 MiB = 75, so the heap grows to 84
// MiB between two collections. If collecting then takes 5 % of the processor time, the next headroom is 45 MiB.
package pace

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// leastHeadroom and mostHeadroom bound the number of bytes that may be allocated between two collections. The upper
	// bound is half of the live heap where that is more.
	leastHeadroom = 36 << 20
	mostHeadroom  = 48 << 20
	// leastPercent is the least headroom of a large heap, in percent of the live heap.
	leastPercent = 12
	maxPercent   = 800

	// collectorShare is the part of the processor time that collections may take. If they take more, the headroom grows,
	// by at most half at a time; if they take less, it shrinks, by at most a quarter.
	collectorShare = 0.04
	mostGrowth     = 1.5
	mostShrinking  = 0.75
	// Collections that are further apart than restTime take little, whatever share of the time in between it is.
	restTime = time.Second

	liveMetric      = "/gc/heap/live:bytes"
	collectorMetric = "/cpu/classes/gc/total:cpu-seconds"
	userMetric      = "/cpu/classes/user:cpu-seconds"
)

// limitShare is the part of the control groups' limit that the Go runtime may use, in percent. The rest is for the
// code of the program, and for memory that the runtime returns late.
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
	p := newPacer()
	p.adjust(time.Now())
	adjustAfterEachCollection(p)
}

// pacer computes GOGC and sets it when it changes.
type pacer struct {
	sample   []metrics.Sample
	current  int     // GOGC
	headroom float64 // bytes

	at              time.Time // of the last collection
	collector, user float64   // seconds of processor time until then
}

func newPacer() *pacer {
	return &pacer{
		sample:   []metrics.Sample{{Name: liveMetric}, {Name: collectorMetric}, {Name: userMetric}},
		headroom: leastHeadroom,
	}
}

// adjust is called after each collection.
func (p *pacer) adjust(now time.Time) {
	metrics.Read(p.sample)
	next := p.percent(now, p.sample[0].Value.Uint64(), p.sample[1].Value.Float64(), p.sample[2].Value.Float64())
	if next != p.current {
		p.current = next
		debug.SetGCPercent(next)
	}
}

// percent returns the next value of GOGC. live is the live heap in bytes; collector and user are the processor time, in
// seconds, that collections and everything else have taken since the process started.
func (p *pacer) percent(now time.Time, live uint64, collector, user float64) int {
	collecting, rest := collector-p.collector, user-p.user
	change := mostShrinking
	if now.Sub(p.at) < restTime && collecting+rest > 0 {
		change = min(mostGrowth, max(mostShrinking, collecting/(collecting+rest)/collectorShare))
	}
	p.at, p.collector, p.user = now, collector, user
	p.headroom = min(max(mostHeadroom, float64(live)/2), max(leastHeadroom, p.headroom*change))
	if live == 0 {
		return maxPercent
	}
	return int(min(maxPercent, max(leastPercent, p.headroom*100/float64(live))))
}

// adjustAfterEachCollection runs adjust after each collection. The collector finds the sentinel unreachable and runs
// its finalizer, which creates the next sentinel.
func adjustAfterEachCollection(p *pacer) {
	sentinel := &struct{ _ [16]byte }{}
	runtime.SetFinalizer(sentinel, func(*struct{ _ [16]byte }) {
		p.adjust(time.Now())
		adjustAfterEachCollection(p)
	})
}
