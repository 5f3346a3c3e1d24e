package pace

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// checkInterval is the time between two checks of how much the process has allocated. The process is idle if it has
	// allocated less than idleAllocations since the last check.
	checkInterval   = time.Second
	idleAllocations = 1 << 20

	// An idle process collects its garbage only if it has at least minGarbage bytes of it, and at least the live
	// heap divided by garbageShare.
	minGarbage   = 4 << 20
	garbageShare = 16

	// minFreePause is the shortest time between two collections of an idle process. With the least garbage that is
	// worth a collection, the time is freePausePerMebibyte for each mebibyte of the live heap, because marking a
	// mebibyte takes about a millisecond. With twice as much garbage the time is half as long, and so on.
	minFreePause         = 2 * time.Second
	freePausePerMebibyte = 50 * time.Millisecond

	allocatedMetric = "/gc/heap/allocs:bytes"
)

// FreeWhenIdle runs until ctx ends. Whenever the process is idle, it collects the garbage and returns the free
// memory of the heap to the operating system. Without this, an idle process would keep the memory that a burst of
// requests has allocated.
func FreeWhenIdle(ctx context.Context) {
	var f freer
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if f.shouldFree(now, readHeap()) {
				debug.FreeOSMemory()
				f.freed(now, readHeap())
			}
		}
	}
}

// heap is the state of the heap according to the runtime, in bytes.
type heap struct {
	allocated uint64 // since the process started, including freed memory
	live      uint64 // in use at the last collection
}

func readHeap() heap {
	sample := []metrics.Sample{{Name: allocatedMetric}, {Name: liveMetric}}
	metrics.Read(sample)
	return heap{sample[0].Value.Uint64(), sample[1].Value.Uint64()}
}

// freer decides when to free memory. The zero value is ready for use.
type freer struct {
	allocatedBefore    uint64    // heap.allocated at the last check
	allocatedWhenFreed uint64    // heap.allocated when memory was last freed
	freedAt            time.Time // when memory was last freed; zero means never
}

// shouldFree is called every checkInterval and reports whether memory should be freed now. At the first call the
// process does not count as idle, because its start has allocated much.
func (f *freer) shouldFree(now time.Time, h heap) bool {
	allocations, garbage := h.allocated-f.allocatedBefore, h.allocated-f.allocatedWhenFreed
	f.allocatedBefore = h.allocated
	return allocations < idleAllocations &&
		garbage >= max(minGarbage, h.live/garbageShare) &&
		now.Sub(f.freedAt) >= pause(h.live, garbage)
}

// freed records that memory was freed at now, and that the heap is h afterwards.
func (f *freer) freed(now time.Time, h heap) {
	f.allocatedBefore, f.allocatedWhenFreed, f.freedAt = h.allocated, h.allocated, now
}

// pause returns the shortest time between two collections of an idle process with that much garbage.
func pause(live, garbage uint64) time.Duration {
	longest := time.Duration(live>>20) * freePausePerMebibyte
	least := max(minGarbage, live/garbageShare)
	return max(minFreePause, time.Duration(float64(longest)*float64(least)/float64(max(garbage, least))))
}
