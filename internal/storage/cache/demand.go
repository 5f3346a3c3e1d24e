package cache

import (
	"math"
	"sync"
	"time"
)

// Memory configures which resources have their objects in memory and which are read from the store. The zero value
// of each field means the default.
//
// A small resource is in memory from its first use on, if there is room. A larger one is in memory while it is
// read often. Each read adds a charge: the cost of serving it from the store. Charges fade with time. When their
// sum reaches the charge of one read of all objects, the objects are loaded. This is a solution of the ski rental
// problem: it never costs more than twice the best choice in hindsight.
//
// If large resources that are seldom read together use too much memory, the resource with the most memory per read
// is dropped. The same is done when all loaded resources together exceed LoadedBytes; then small resources and
// those that are read often can also be dropped. A resource is not loaded if LoadedBytes would be exceeded.
type Memory struct {
	// SmallObjects and SmallBytes bound a small resource, which is in memory if there is room. 0 means 1,000 objects and
	// 4 MiB. A negative value means that no resource is small.
	SmallObjects int
	SmallBytes   int64
	// UnreadBytes bounds the memory of all seldom read large resources together. 0 means a 64th of the budget, at
	// most 16 MiB; a negative value means that no such resource stays in memory.
	UnreadBytes int64
	// LoadedBytes bounds the memory of all loaded resources together, however often they are read. 0 means half of the
	// budget of the cache.
	LoadedBytes int64
	// ScanBytes bounds a resource that is loaded because of one read of all its objects. If the resource is
	// larger, such a read is served from the store, page by page. 0 means a sixteenth of the budget, at most 64
	// MiB.
	ScanBytes int64
	// LogBytes bounds the log of a resource whose objects are not in memory. 0 means a 64th of the budget, at most 8 MiB.
	LogBytes int64
	// LoadAfter is the sum of charges at which a large resource is loaded, divided by the number of its objects. 0
	// means 1, the charge of reading each object once. With infinity, reads never load a large resource.
	LoadAfter float64
	// HalfLife is the time in which a charge fades to half. 0 means one minute.
	HalfLife time.Duration
}

func (m Memory) withDefaults(budget int64) Memory {
	if m.SmallObjects == 0 {
		m.SmallObjects = 1000
	}
	if m.SmallBytes == 0 {
		m.SmallBytes = 4 << 20
	}
	if m.UnreadBytes == 0 {
		m.UnreadBytes = min(budget/64, 16<<20)
	}
	if m.LoadedBytes == 0 {
		m.LoadedBytes = budget / 2
	}
	if m.ScanBytes == 0 {
		m.ScanBytes = min(budget/16, 64<<20)
	}
	if m.LogBytes == 0 {
		m.LogBytes = min(budget/64, 8<<20)
	}
	if m.LoadAfter == 0 {
		m.LoadAfter = 1
	}
	if m.HalfLife == 0 {
		m.HalfLife = time.Minute
	}
	return m
}

// small reports whether this number of objects and bytes is within SmallObjects and SmallBytes.
func (m *Memory) small(objects int, bytes int64) bool {
	return objects <= m.SmallObjects && bytes <= m.SmallBytes
}

// loads reports whether reads may load large resources at all.
func (m *Memory) loads() bool { return !math.IsInf(m.LoadAfter, 1) }

// These are the charges of reads. The unit is the cost of reading one object in a scan of the store. A page is
// charged little more than the objects that it returns, because the next page continues at its end. An object in a
// list of all objects is charged little: most of its cost is to encode and send it, which is the same for objects
// in memory.
const (
	pointCharge = 8
	scanCharge  = 1
	pageCharge  = 0.25
	wholeCharge = 1.0 / 16
)

// seldomRead is a fraction of the number of objects. If the sum of charges of a resource is below this fraction,
// the resource counts as seldom read. It is far below the sum at which a resource is loaded, so that no resource
// is loaded and dropped again and again.
const seldomRead = 1.0 / 8

// demand is the sum of the charges of reads. Each charge fades to half in every half-life.
type demand struct {
	mu    sync.Mutex // guards what follows
	value float64    // the sum at the time at
	at    time.Time
}

// add adds the charge of a read and returns the sum.
func (d *demand) add(now time.Time, halfLife time.Duration, charge float64) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if passed := now.Sub(d.at); passed > 0 {
		d.value *= math.Exp2(-float64(passed) / float64(halfLife))
		d.at = now
	}
	d.value += charge
	return d.value
}
