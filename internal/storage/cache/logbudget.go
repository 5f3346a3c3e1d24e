package cache

import (
	"slices"
	"sync/atomic"
)

// leastLog is the size in bytes that every log may have, even when the budget is exceeded.
const leastLog = 16 << 10

// logBudget bounds the bytes of the logs of all resources together. When the logs exceed the limit, the largest
// ones are cut to the same size. So a busy resource does not shorten the logs of resources that change seldom.
type logBudget struct {
	limit int64
	used  atomic.Int64
	most  atomic.Int64  // current limit for the log of one resource, in bytes
	next  atomic.Int64  // the number of used bytes at which trimLogs is called
	over  chan struct{} // capacity 1; has a value if trimLogs must be called
}

// add counts bytes by which logs have grown.
func (b *logBudget) add(bytes int64) {
	if bytes == 0 || b.used.Add(bytes) <= b.next.Load() {
		return
	}
	select {
	case b.over <- struct{}{}:
	default: // a call is already requested
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
	// Many logs of leastLog bytes may exceed the limit together. trimLogs is then called again only when the logs
	// have grown further.
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

// fairSize returns the largest size, not above most, such that the sum is at most limit if all larger sizes are
// cut to it. The result is at least leastLog, or most if that is less.
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
