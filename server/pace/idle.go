package pace

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often the process looks at how much it has allocated. It is idle
	// if that was less than idleAllocations since the last look.
	lookEvery       = time.Second
	idleAllocations = 1 << 20

	// An idle process collects its garbage only when there may be enough of it:
	// leastGarbage bytes, or one part in garbageShare of what is live where that is more.
	leastGarbage = 4 << 20
	garbageShare = 16

	// freeEvery is the least time between two collections of an idle process;
	// freeForMebibyte is added for each mebibyte that is live, because marking one takes
	// about a millisecond.
	freeEvery       = 2 * time.Second
	freeForMebibyte = 50 * time.Millisecond

	allocatedMetric = "/gc/heap/allocs:bytes"
)

// FreeWhenIdle collects the garbage of this process and gives the free memory of its
// heap back to the system whenever the process is idle, until ctx ends. Without it the
// heap of an idle process keeps what a burst of requests has made it grow by.
func FreeWhenIdle(ctx context.Context) {
	var f freer
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if f.look(now, readHeap()) {
				debug.FreeOSMemory()
				f.freed(now, readHeap())
			}
		}
	}
}

// heap is what the runtime says about the heap, in bytes.
type heap struct {
	allocated uint64 // since the process started, whether it is still used or not
	live      uint64 // that the last collection found in use
}

func readHeap() heap {
	sample := []metrics.Sample{{Name: allocatedMetric}, {Name: liveMetric}}
	metrics.Read(sample)
	return heap{sample[0].Value.Uint64(), sample[1].Value.Uint64()}
}

// freer decides when to free memory. The zero value has not looked yet, and has freed
// nothing.
type freer struct {
	seen      uint64    // heap.allocated at the last look
	freedAt   uint64    // heap.allocated when memory was freed last
	freedWhen time.Time // zero: never
}

// look is called every lookEvery and returns whether memory is to be freed now. The
// first look sees all that the start has allocated: the process is not idle then.
func (f *freer) look(now time.Time, h heap) bool {
	allocations, garbage := h.allocated-f.seen, h.allocated-f.freedAt
	f.seen = h.allocated
	return allocations < idleAllocations &&
		garbage >= max(leastGarbage, h.live/garbageShare) &&
		now.Sub(f.freedWhen) >= pause(h.live)
}

// freed says that memory was freed at a time, after which the heap is h.
func (f *freer) freed(now time.Time, h heap) {
	f.seen, f.freedAt, f.freedWhen = h.allocated, h.allocated, now
}

// pause is the least time between two collections of an idle process.
func pause(live uint64) time.Duration {
	return max(freeEvery, time.Duration(live>>20)*freeForMebibyte)
}
