package cache

import (
	"time"
)

// checkInterval returns the number of bytes by which the objects of a resource grow between two calls of checkMemory.
func (m *Memory) checkInterval() int64 { return min(max(m.UnreadBytes, 0)/16, 1<<20) }

// addDemand adds the charges of reads to the demand, and returns the demand.
func (r *Resource) addDemand(charge float64) float64 {
	return r.usage.demand.add(time.Now(), r.cache.memory.HalfLife, charge+float64(r.usage.reads.Swap(0)))
}

// charge adds the charges of reads that the store has served. It starts a load if reading all objects into memory would
// have been cheaper.
func (r *Resource) charge(cost float64) {
	sum := r.addDemand(cost)
	m := &r.cache.memory
	st := r.state.Load()
	if st == nil || st.loaded || !st.counted || !m.loads() || sum < m.LoadAfter*float64(max(st.count, 1)) {
		return
	}
	if !r.write.TryLock() {
		return // the next read will try
	}
	defer r.write.Unlock()
	if st := r.state.Load(); st != nil && !st.loaded && r.err() == nil {
		r.startLoad(true)
	}
}

// dropObjects changes a loaded resource to a followed one: its objects are then only in the store. The caller holds
// write.
func (r *Resource) dropObjects() {
	st := r.state.Load()
	next := &state{revision: st.revision, counted: true, count: int64(st.objects.All().Len())}
	r.mu.Lock()
	logged := make(map[*Object]bool, 2*r.changes.log.Len())
	for p := r.changes.log.First(); p < r.changes.log.Next(); p++ {
		e := r.changes.log.Get(p)
		logged[e.Object], logged[e.Prev] = true, true
	}
	r.changes.log.Resize(func(e *Event) int64 {
		e.logOnly = e.Object != nil
		return e.cost()
	})
	r.state.Store(next)
	r.trim(next)
	r.mu.Unlock()
	r.checkedBytes = 0
	// There may be many objects. Readers that still use them may cache encodings until the release.
	r.releasing.Add(1)
	r.cache.spawn(func() {
		r.releaseEncodings(st.objects, logged)
		r.releasing.Add(-1)
	})
}

// checkMemory drops the objects of this resource if large resources that are seldom read use too much memory, and this
// one is the most expensive of them. It does so only after the objects have grown by checkInterval. The caller holds
// write.
func (r *Resource) checkMemory() {
	m := &r.cache.memory
	st := r.state.Load()
	if st == nil || !st.loaded || r.loading != nil {
		return
	}
	if st.bytes < r.checkedBytes {
		r.checkedBytes = st.bytes
	}
	if m.small(st.objects.All().Len(), st.bytes) || st.bytes < r.checkedBytes+m.checkInterval() {
		return
	}
	r.checkedBytes = st.bytes
	if r.cache.seldomRead() == r {
		r.dropObjects()
	}
}

// seldomRead returns the seldom read large resource that uses most memory for its reads, if those together use too
// much.
func (c *Cache) seldomRead() (worst *Resource) {
	var sum int64
	var most float64
	for _, r := range c.all() {
		st := r.state.Load()
		if st == nil || !st.loaded {
			continue
		}
		n := st.objects.All().Len()
		if c.memory.small(n, st.bytes) {
			continue
		}
		rate := r.addDemand(0) / float64(max(n, 1))
		if rate >= seldomRead {
			continue
		}
		sum += st.bytes
		if cost := float64(st.bytes) / (rate + seldomRead/16); worst == nil || cost > most {
			worst, most = r, cost
		}
	}
	if sum <= max(c.memory.UnreadBytes, 0) {
		return nil
	}
	return worst
}

// dropSeldomRead drops the objects of the resource that seldomRead returns.
func (c *Cache) dropSeldomRead() {
	for r := c.seldomRead(); r != nil; r = c.seldomRead() {
		r.write.Lock()
		st := r.state.Load()
		drop := st != nil && st.loaded && r.loading == nil
		if drop {
			r.dropObjects()
		}
		r.write.Unlock()
		if !drop {
			return
		}
	}
}

// restartLog restarts the log of a followed resource at revision base, because earlier changes are unknown. Its cursors
// must then read the history of the store. The caller holds write.
func (r *Resource) restartLog(base int64) {
	r.mu.Lock()
	r.changes.log.Clear(r.releaseEvent)
	r.changes.log.Reset(base)
	r.changes.log.Skip()
	r.changes.completeFrom = r.changes.log.Next()
	r.state.Store(&state{revision: base, from: base})
	r.wake(&r.changes.wakeup)
	r.changes.interests.Each(r.wakePosting)
	r.mu.Unlock()
	r.wakeAll()
	r.cache.spawn(func() { r.countAt(base) })
}
