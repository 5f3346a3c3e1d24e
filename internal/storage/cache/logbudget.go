package cache

import (
	"slices"
	"sync/atomic"
)

// leastLog is the number of bytes that the log of a resource may always have.
const leastLog = 16 << 10

// logBudget bounds the bytes of the logs of all resources together. When they exceed it, the largest logs are cut to the
// same size: a busy resource does not take the log of those that change seldom.
type logBudget struct {
	limit int64
	used  atomic.Int64
	most  atomic.Int64  // bytes that the log of one resource may have now
	next  atomic.Int64  // the number of used bytes at which trimLogs is called
	over  chan struct{} // has a value if trimLogs shall be called; it has room for one
}

// add counts bytes that logs take more than before.
func (b *logBudget) add(bytes int64) {
	if bytes == 0 || b.used.Add(bytes) <= b.next.Load() {
		return
	}
	select {
	case b.over <- struct{}{}:
	default: // it will be called
	}
}

// trimLogs sets the size that the logs may have now, and trims those that are larger.
func (c *Cache) trimLogs() {
	all := append(c.all(), c.keptRemoved()...)
	sizes := make([]int64, len(all))
	for i, r := range all {
		sizes[i] = r.published.counted.Load()
	}
	b := &c.logs
	most := fairSize(sizes, b.limit-b.limit/8, c.windowBytes)
	b.most.Store(most)
	// Logs of leastLog may exceed the limit; then they are looked at again when they have grown.
	defer func() { b.next.Store(max(b.limit, b.used.Load()+b.limit/8)) }()
	for i, r := range all {
		if sizes[i] <= most {
			continue
		}
		r.write.Lock()
		r.published.trimLog(r.logLimit(r.published.state.Load()))
		r.write.Unlock()
	}
}

// fairSize returns the largest size, at most most, to which all sizes may be cut so that their sum is at most limit. It is
// at least leastLog, or most if that is less.
func fairSize(sizes []int64, limit, most int64) int64 {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, size := range sizes {
		share := limit / int64(len(sizes)-i)
		if size > share {
			return min(most, max(share, leastLog))
		}
		limit -= size
	}
	return most
}
