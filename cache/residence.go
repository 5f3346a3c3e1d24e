package cache

import (
	"time"

	"github.com/keelson-dev/keelson/storage"
)

// judgeEvery is the number of bytes by which a resource grows until judge is called again.
func (m *Memory) judgeEvery() int64 { return min(max(m.UnreadBytes, 0)/16, 1<<20) }

// wanted adds the charges of reads and returns the faded sum.
func (r *Resource) wanted(charge float64) float64 {
	return r.demand.add(time.Now(), r.cache.memory.HalfLife, charge+float64(r.reads.Swap(0)))
}

// charge adds the charges of reads that the store has served. It starts a load if reading all objects into memory
// would have been cheaper.
func (r *Resource) charge(cost float64) {
	sum := r.wanted(cost)
	m := &r.cache.memory
	st := r.state.Load()
	if st == nil || st.held || !st.counted || !m.loads() || sum < m.LoadAfter*float64(max(st.count, 1)) {
		return
	}
	if !r.write.TryLock() {
		return // the next read will try
	}
	defer r.write.Unlock()
	if st := r.state.Load(); st != nil && !st.held && r.err() == nil {
		r.begin(true)
	}
}

// hold makes a followed resource held, with objects that are at most as new as the
// log. It returns false if the log does not reach back to them. The caller holds
// write.
func (r *Resource) hold(f fetched) bool {
	st := r.state.Load()
	if st.held {
		return true
	}
	if !r.log.Covers(f.revision) {
		return false
	}
	edit := f.objects.Edit()
	bytes := f.bytes
	first := r.log.After(f.revision)
	for p := r.log.First(); p < r.log.Next(); p++ {
		e := r.log.Get(p)
		o := e.Object
		switch {
		case p >= first && o == nil:
			old, _ := edit.Delete(e.Prev.Key)
			bytes -= old.heldBytes()
		case p >= first:
			old, _ := edit.Put(o.Key, o)
			bytes += o.heldBytes() - old.heldBytes()
		case o != nil:
			// One object for the log and the tree, with its forms.
			if same, ok := edit.Get(o.Key); ok && same.Revision == o.Revision && o.unread() == nil {
				edit.Put(o.Key, o)
			}
		}
	}
	r.loads.Add(1)
	next := &state{revision: st.revision, held: true, objects: edit.Done(), bytes: bytes}
	all := next.objects.All()
	r.wanted(float64(next.objects.All().Len()))
	r.judged = bytes
	r.mu.Lock()
	r.log.Resize(func(e *Event) int64 {
		if e.Object != nil {
			now, _ := all.Get(e.Object.Key)
			e.alone = e.Object != now
		}
		return e.cost()
	})
	r.state.Store(next)
	r.mu.Unlock()
	r.resolveUnread()
	return true
}

// leave changes a held resource to a followed one: its objects are then only in the store. The caller holds write.
func (r *Resource) leave() {
	st := r.state.Load()
	next := &state{revision: st.revision, counted: true, count: int64(st.objects.All().Len())}
	r.mu.Lock()
	logged := make(map[*Object]bool, 2*r.log.Len())
	for p := r.log.First(); p < r.log.Next(); p++ {
		e := r.log.Get(p)
		logged[e.Object], logged[e.Prev] = true, true
	}
	r.log.Resize(func(e *Event) int64 {
		e.alone = e.Object != nil
		return e.cost()
	})
	r.state.Store(next)
	r.trim(next)
	r.mu.Unlock()
	r.judged = 0
	// There may be many. Who still reads them may keep a form with one meanwhile.
	r.releasing.Add(1)
	r.cache.spawn(func() {
		r.releaseForms(st.objects, logged)
		r.releasing.Add(-1)
	})
}

// judge drops the objects of seldom read resources if they use too much memory. The caller holds write.
func (r *Resource) judge() {
	m := &r.cache.memory
	st := r.state.Load()
	if st == nil || !st.held || r.loading != nil {
		return
	}
	if st.bytes < r.judged {
		r.judged = st.bytes
	}
	if m.small(st.objects.All().Len(), st.bytes) || st.bytes < r.judged+m.judgeEvery() {
		return
	}
	r.judged = st.bytes
	if r.cache.seldomRead() == r {
		r.leave()
	}
}

// seldomRead returns the seldom read large resource that uses most memory for its reads, if those together use too
// much.
func (c *Cache) seldomRead() (worst *Resource) {
	var sum int64
	var most float64
	for _, r := range c.all() {
		st := r.state.Load()
		if st == nil || !st.held {
			continue
		}
		n := st.objects.All().Len()
		if c.memory.small(n, st.bytes) {
			continue
		}
		rate := r.wanted(0) / float64(max(n, 1))
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
		drop := st != nil && st.held && r.loading == nil
		if drop {
			r.leave()
		}
		r.write.Unlock()
		if !drop {
			return
		}
	}
}

// interrupt restarts the log of a followed resource at a revision, because earlier changes are unknown. Its cursors
// must then read the history of the store. The caller holds write.
func (r *Resource) interrupt(base int64) {
	r.mu.Lock()
	r.log.Clear(r.trimmed)
	r.log.Reset(base)
	r.log.Skip()
	r.complete = r.log.Next()
	r.state.Store(&state{revision: base, from: base})
	r.wake(&r.gate)
	r.interests.Each(r.wakePosting)
	r.mu.Unlock()
	r.wakeAll()
	r.cache.spawn(func() { r.countAt(base) })
}

// countAt computes the number of objects of a followed resource from their number at the revision from which its
// changes are counted.
func (r *Resource) countAt(from int64) {
	result, err := r.cache.store.Range(r.cache.ctx, storage.RangeRequest{
		Start: r.config.Prefix, End: storage.PrefixEnd(r.config.Prefix), Revision: from, CountOnly: true,
	})
	if err != nil {
		if r.cache.ctx.Err() == nil {
			r.cache.logger.Warn(
				"cache: the objects of a resource cannot be counted", "resource", r.config.Resource, "error", err,
			)
		}
		return
	}
	r.write.Lock()
	defer r.write.Unlock()
	st := r.state.Load()
	if st == nil || st.held || st.counted || st.from != from {
		return
	}
	next := new(state)
	*next = *st
	next.counted, next.count = true, st.count+result.Count
	r.mu.Lock()
	r.state.Store(next)
	r.mu.Unlock()
}

// numberAt returns the number of objects at a revision, if the log has it.
func (r *Resource) numberAt(revision int64) (int64, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	st := r.state.Load()
	if st == nil || revision > max(st.revision, r.cache.applied.Load()) || !r.log.Covers(revision) {
		return 0, false
	}
	n, ok := st.number()
	for p := r.log.After(revision); p < r.log.Next(); p++ {
		switch e := r.log.Get(p); {
		case e.Prev == nil:
			n--
		case e.Object == nil:
			n++
		}
	}
	return n, ok
}
