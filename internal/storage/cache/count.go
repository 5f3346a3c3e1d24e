package cache

import (
	"cmp"
	"strings"
	"sync"
)

// remainingCounts remembers how many objects follow the pages of lists, so that a page that is read from the store need
// not count them. The number after a page is the number after the previous page minus the objects of the page; and the
// number after the first page of a list is the one after the first page of an earlier list, with the changes in between.
type remainingCounts struct {
	mu     sync.Mutex // guards counts and oldest
	counts map[remainingKey]remainingCount
	oldest []remainingKey // the keys of counts in the order in which they were added
}

// remainingKey identifies the remaining objects of a list: the keys with a prefix, not below from.
type remainingKey struct{ prefix, from string } // whole keys of the store

// remainingCount is their number at a revision.
type remainingCount struct {
	revision, number int64
	more             bool // there are more, because only the first ones were counted
}

// maxRemainingCounts is the highest number of remembered pages.
const maxRemainingCounts = 1024

func (m *remainingCounts) get(k remainingKey) (remainingCount, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.counts[k]
	return n, ok
}

func (m *remainingCounts) put(k remainingKey, n remainingCount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = make(map[remainingKey]remainingCount)
	}
	if _, ok := m.counts[k]; !ok {
		if len(m.oldest) >= maxRemainingCounts {
			delete(m.counts, m.oldest[0])
			m.oldest = m.oldest[1:]
		}
		m.oldest = append(m.oldest, k)
	}
	m.counts[k] = n
}

// maxRecounted bounds how many events are looked at instead of counting objects.
const maxRecounted = 2048

// added returns how many objects with a prefix and not below from there are more at revision upTo than at revision after.
// It returns false if the log does not have the changes in between, or too many.
func (r *Resource) added(after, upTo int64, prefix, from string) (n int64, known bool) {
	if after > upTo || r.cache.feed.applied.Load() < upTo {
		return 0, false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	log := &r.changes.log
	if !log.Covers(after) || log.Next()-log.After(after) > maxRecounted {
		return 0, false
	}
	for p := log.After(after); p < log.Next(); p++ {
		e := log.Get(p)
		if e.Revision > upTo {
			break
		}
		o := cmp.Or(e.Object, e.Prev)
		if o.Key < from || !strings.HasPrefix(o.Key, prefix) {
			continue
		}
		switch {
		case e.Prev == nil:
			n++
		case e.Object == nil:
			n--
		}
	}
	return n, true
}

// countAt counts the objects of a followed resource in the store at revision from, after which the changes of the
// number are already counted in the state. Then the current number is known.
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
	st := r.state.Load()
	if st == nil || st.loaded || st.counted || st.from != from {
		return
	}
	next := new(state)
	*next = *st
	next.counted, next.count = true, st.count+n
	r.mu.Lock()
	r.state.Store(next)
	r.mu.Unlock()
}

// numberAt returns the number of objects at a revision. It returns false if the log does not reach back to it.
func (r *Resource) numberAt(revision int64) (int64, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	st := r.state.Load()
	if st == nil || revision > max(st.revision, r.cache.feed.applied.Load()) || !r.changes.log.Covers(revision) {
		return 0, false
	}
	n, ok := st.number()
	for p := r.changes.log.After(revision); p < r.changes.log.Next(); p++ {
		switch e := r.changes.log.Get(p); {
		case e.Prev == nil:
			n--
		case e.Object == nil:
			n++
		}
	}
	return n, ok
}
