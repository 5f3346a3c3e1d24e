package cache

// checkInterval returns the number of bytes by which the objects of a resource must grow before checkMemory checks
// it again.
func (m *Memory) checkInterval() int64 { return min(max(m.UnreadBytes, 0)/16, 1<<20) }

// charge adds the charge of a read that the store has served. If the reads so far have cost as much as reading all
// objects into memory, and there is room, it starts a load.
func (r *Resource) charge(cost float64) {
	sum := r.usage.charge(cost)
	st := r.published.state.Load()
	if st == nil || st.loaded || !st.counted || !r.usage.isWorthLoading(sum, st.count) {
		return
	}
	room, ok := r.usage.room(st.count, func() int64 { return r.cache.loadedBytes(r) })
	if !ok || !r.write.TryLock() {
		return // the next read will try
	}
	defer r.write.Unlock()
	if st := r.published.state.Load(); st != nil && !st.loaded && r.err() == nil {
		r.startLoad(room)
	}
}

// loadedBytes returns the memory of the objects of all loaded resources, without the resource but, which may be
// nil.
func (c *Cache) loadedBytes(but *Resource) (sum int64) {
	for _, r := range c.all() {
		if st := r.published.state.Load(); r != but && st != nil && st.loaded {
			sum += st.bytes
		}
	}
	return sum
}

// isSmall reports whether the objects of a loaded resource are within Memory.SmallObjects and Memory.SmallBytes.
func (c *Cache) isSmall(st *state) bool { return c.memory.small(st.objects.All().Len(), st.bytes) }

// dropObjects changes a loaded resource to a followed one: its objects are then only in the store. The caller holds
// write.
func (r *Resource) dropObjects() {
	st := r.published.state.Load()
	next := &state{revision: st.revision, counted: true, count: int64(st.objects.All().Len())}
	r.usage.noteSize(int(next.count), st.bytes)
	logged := r.published.objects()
	r.published.replace(next, r.logLimit(next))
	r.checkedBytes = 0
	r.cache.droppedBytes.Add(st.bytes)
	// The release runs in the background, because there may be many objects. Readers that still use them may cache
	// encodings until the release.
	r.releasing.Add(1)
	r.cache.background.spawn(func() {
		r.cache.encodings.releaseAll(st.objects, logged)
		r.releasing.Add(-1)
	})
}

// checkMemory drops the objects of this resource if loaded resources use too much memory and seldomRead selects
// this one. It does so only after the objects have grown by checkInterval. The caller holds write.
func (r *Resource) checkMemory() {
	m := &r.cache.memory
	st := r.published.state.Load()
	if st == nil || !st.loaded || r.loading != nil {
		return
	}
	if st.bytes < r.checkedBytes {
		r.checkedBytes = st.bytes
	}
	if st.bytes < r.checkedBytes+m.checkInterval() {
		return
	}
	r.checkedBytes = st.bytes
	if r.cache.seldomRead() == r {
		r.dropObjects()
	}
}

// seldomRead returns the resource to drop, nil if there is none. It returns one if all loaded resources together
// use too much memory, or if the large, seldom read ones do: the one that uses most memory in proportion to its
// reads.
func (c *Cache) seldomRead() *Resource {
	var seldom, all memoryUse
	for _, r := range c.all() {
		st := r.published.state.Load()
		if st == nil || !st.loaded {
			continue
		}
		rate := r.usage.charge(0) / float64(max(st.objects.All().Len(), 1))
		all.add(r, st.bytes, rate)
		if rate < seldomRead && !c.isSmall(st) {
			seldom.add(r, st.bytes, rate)
		}
	}
	switch {
	case seldom.sum > max(c.memory.UnreadBytes, 0):
		return seldom.worst
	case all.sum > c.memory.LoadedBytes:
		return all.worst
	}
	return nil
}

// memoryUse is the total memory of resources, and the resource that uses most memory in proportion to its reads.
type memoryUse struct {
	sum   int64
	worst *Resource
	most  float64
}

// add adds a resource. rate is its sum of charges divided by the number of its objects.
func (u *memoryUse) add(r *Resource, bytes int64, rate float64) {
	u.sum += bytes
	if cost := float64(bytes) / (rate + seldomRead/16); u.worst == nil || cost > u.most {
		u.worst, u.most = r, cost
	}
}

// dropSeldomRead drops the objects of the resource that seldomRead returns.
func (c *Cache) dropSeldomRead() {
	for r := c.seldomRead(); r != nil; r = c.seldomRead() {
		r.write.Lock()
		st := r.published.state.Load()
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
