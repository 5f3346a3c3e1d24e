package cache

import (
	"cmp"
	"sync/atomic"
	"time"
)

// usage records how a resource is read, and decides whether its objects should be in memory. It needs no lock: its
// counters are atomic, and a decision may use numbers that are slightly old.
type usage struct {
	memory *Memory

	used  atomic.Bool  // the resource was read since the last check of dropUnused
	loads atomic.Int64 // number of times that all objects were loaded

	demand demand       // the charges of reads
	reads  atomic.Int64 // charges of reads from memory that are not added to demand yet
	// scanning means that a reader goes through all objects in the store.
	scanning atomic.Bool
	size     atomic.Int64 // objectSize, 0 if it is unknown
	// fullUntil is a time in Unix nanoseconds until which no load is tried, because there is no room for the objects.
	fullUntil atomic.Int64
}

// noteSize records that n objects take so many bytes of memory.
func (u *usage) noteSize(n int, bytes int64) {
	if n > 0 {
		u.size.Store(max(bytes/int64(n), 1))
	}
}

// objectSize returns the average memory of an object, estimated from the last reads.
func (u *usage) objectSize() int64 {
	const unknown = 4 << 10
	return cmp.Or(u.size.Load(), unknown)
}

// mark records that the resource is read.
func (u *usage) mark() {
	if !u.used.Load() {
		u.used.Store(true)
	}
}

// charge adds the charge of a read from the store, and the charges of reads from memory since the last call, to
// the demand. It returns the demand.
func (u *usage) charge(cost float64) float64 {
	return u.demand.add(time.Now(), u.memory.HalfLife, cost+float64(u.reads.Swap(0)))
}

// isWorthLoading reports whether the demand is so high that reading n objects into memory is expected to be
// cheaper than further reads from the store.
func (u *usage) isWorthLoading(demand float64, n int64) bool {
	return u.memory.loads() && demand >= u.memory.LoadAfter*float64(max(n, 1))
}

// fullPause is the time for which no load is tried after there was no room for the objects.
const fullPause = 5 * time.Second

// noteFull records that there was no room for the objects.
func (u *usage) noteFull() { u.fullUntil.Store(time.Now().Add(fullPause).UnixNano()) }

// isFull reports whether there was no room in the last fullPause.
func (u *usage) isFull() bool { return time.Now().UnixNano() < u.fullUntil.Load() }

// room returns the number of bytes that the objects may take, and whether n objects are expected to fit. others returns the
// bytes of the objects of all other resources. After a negative result it returns false for fullPause without checking.
func (u *usage) room(n int64, others func() int64) (int64, bool) {
	if u.isFull() {
		return 0, false
	}
	room := u.memory.LoadedBytes - others()
	if room <= 0 || n > room/u.objectSize() {
		u.noteFull()
		return 0, false
	}
	return room, true
}
