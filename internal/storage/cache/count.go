package cache

import (
	"sync"
)

// remainingCounts remembers how many objects follow the pages of lists, so that a page that is read from the store
// need not count them. The number after a page is the number after the previous page, minus the objects of the
// page. The number after the first page is computed from the first page of an earlier list and the changes since
// then.
type remainingCounts struct {
	mu     sync.Mutex // guards counts and oldest
	counts map[remainingKey]remainingCount
	oldest []remainingKey // the keys of counts in the order in which they were added
}

// remainingKey identifies the remaining objects of a list: the keys with a prefix, not below from.
type remainingKey struct{ prefix, from string } // whole keys of the store

// remainingCount is the number of remaining objects at a revision.
type remainingCount struct {
	revision, number int64
	more             bool // number is only a lower bound, because only the first objects were counted
}

// maxRemainingCounts is the highest number of remembered pages.
const maxRemainingCounts = 1024

func (c *remainingCounts) get(k remainingKey) (remainingCount, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.counts[k]
	return n, ok
}

func (c *remainingCounts) put(k remainingKey, n remainingCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[remainingKey]remainingCount)
	}
	if _, ok := c.counts[k]; !ok {
		if len(c.oldest) >= maxRemainingCounts {
			delete(c.counts, c.oldest[0])
			c.oldest = c.oldest[1:]
		}
		c.oldest = append(c.oldest, k)
	}
	c.counts[k] = n
}

// countAt counts the objects of a followed resource in the store at revision from. The state has already counted
// the changes after from, so that the sum is the current number.
func (r *Resource) countAt(from int64) {
	n, err := r.store.count(r.cache.background.ctx, "", from, 0)
	if err != nil {
		if r.cache.background.ctx.Err() == nil {
			r.cache.logger.Warn(
				"cache: the objects of a resource cannot be counted", "resource", r.config.Resource, "error", err,
			)
		}
		return
	}
	r.write.Lock()
	defer r.write.Unlock()
	st := r.published.state.Load()
	if st == nil || st.loaded || st.counted || st.from != from {
		return
	}
	next := new(state)
	*next = *st
	next.counted, next.count = true, st.count+n
	r.published.amend(next)
}
