package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
)

// eventOverhead is charged for an event in addition to the data that it keeps in memory: the event itself, the previous
// object, and their entries in the log and in posting lists.
const eventOverhead = 512

// Resource is the cache of one resource. It is in one of three modes, which Memory decides:
//
//   - unused: nothing is in memory;
//   - followed: the changes are logged, and the objects are only in the store;
//   - loaded: the changes are logged, and all objects are in memory.
type Resource struct {
	cache   *Cache
	config  Config
	store   storeReader
	decoder decoder

	ended atomic.Pointer[error] // the error that ended the resource; nil while it is served
	usage usage

	// write is held by each goroutine that changes the resource: the feed, the end of a load, a drop. It guards
	// loading and checkedBytes, and is locked before published.mu.
	write        sync.Mutex
	loading      *load // nil if no load is in progress
	checkedBytes int64 // size of the objects when checkMemory last compared it with its limit

	published published

	pending  pendingEncodings
	requests requestLog
	shared   sharedReads
	resolver resolver
	// releasing is the number of drops whose objects are still being released in the background.
	releasing atomic.Int32
	incoming  []storage.Event // used by demux only
}

func newResource(c *Cache, config Config) *Resource {
	r := &Resource{cache: c, config: config}
	r.store = storeReader{&r.config, c.store}
	r.published.encodings, r.published.budget = &c.encodings, &c.logs
	r.decoder = decoder{&r.config, &c.encodings, c.logger}
	r.usage.memory = &c.memory
	r.resolver.decoder, r.resolver.background = &r.decoder, &c.background
	r.resolver.unread, r.resolver.replace = r.unread, r.replaceUnread
	return r
}

// Stats describes a resource.
type Stats struct {
	Followed    bool  // the resource has a log
	Loaded      bool  // all objects are in memory
	Revision    int64 // of the last change, or of the load
	Objects     int   // in the store; valid if Counted
	Counted     bool
	Bytes       int64 // memory of the loaded objects
	Events      int   // number in the log
	WindowBytes int64 // bytes that the log keeps in memory
	Cursors     int
	Interests   int   // number of different interests of the cursors
	Loads       int64 // number of loads of all objects
}

// Stats returns the current statistics of the resource. It does not count as a use.
func (r *Resource) Stats() Stats {
	s := r.published.stats()
	s.Loads = r.usage.loads.Load()
	return s
}

// err returns the reason why the resource or the cache ended, or nil.
func (r *Resource) err() error {
	if p := r.ended.Load(); p != nil {
		return *p
	}
	return r.cache.err()
}

// receive applies the next events of the feed to this resource. After that, the resource has all changes up to
// revision.
func (r *Resource) receive(events []storage.Event, revision int64) {
	r.write.Lock()
	defer r.write.Unlock()
	switch {
	case r.published.state.Load() != nil:
		r.commit(events, revision)
	case r.loading != nil:
		r.loading.events = append(r.loading.events, events...)
		r.loading.revision = revision
	}
}

// commit applies changes as one batch: the state and the log change together, and then the interested cursors are
// woken. The caller holds write.
func (r *Resource) commit(changes []storage.Event, revision int64) {
	next, events := r.published.state.Load().after(&r.decoder, changes, revision)
	if len(events) == 0 {
		return
	}
	r.published.publish(next, events, r.logLimit(next))
	r.afterPublish(events, revision)
}

// afterPublish does the work that follows the publication of a state. The caller holds write.
func (r *Resource) afterPublish(events []*Event, revision int64) {
	if len(events) > 0 {
		r.config.Metrics.Add(CacheEventsReceived, len(events))
		r.config.Metrics.Add(EventsDispatched, len(events))
	}
	r.pending.attach(&r.cache.encodings, events, revision)
	r.published.wakeAll()
	r.checkMemory()
	r.resolver.start()
}

// logLimit returns the largest size in bytes of the log that belongs to a state. The caller holds write.
func (r *Resource) logLimit(st *state) int64 {
	limit := r.cache.logs.most.Load()
	if st != nil && !st.loaded && r.loading == nil {
		limit = min(limit, r.cache.memory.LogBytes)
	}
	return limit
}

// relist brings the resource to the state of the store at revision base, which is above all that the feed has
// applied. If the objects are loaded, their difference is appended to the log. Otherwise the difference is
// unknown, and the log is restarted. A load in progress must then read the objects at base or later.
func (r *Resource) relist(ctx context.Context, base int64) error {
	r.write.Lock()
	defer r.write.Unlock()
	if r.loading != nil {
		r.loading.atLeast = base
	}
	st := r.published.state.Load()
	switch {
	case st == nil, r.ended.Load() != nil, st.revision >= base:
		return nil
	case !st.loaded:
		r.published.restart(base)
		r.published.wakeAll()
		r.cache.background.spawn(func() { r.countAt(base) })
		return nil
	}
	changes, err := st.difference(r.config.Prefix, base, func(each func(storage.Entry) bool) error {
		_, _, err := r.store.scan(ctx, base, each)
		return err
	})
	if err != nil {
		return err
	}
	r.published.addGap(max(st.revision, r.cache.feed.applied.Load()), base)
	r.commit(changes, base)
	return nil
}

// inUse reports whether the resource was read since the last call, or has cursors. It also returns true for an
// unused resource, which needs no drop.
func (r *Resource) inUse() bool {
	if r.usage.used.Swap(false) || r.published.state.Load() == nil {
		return true
	}
	return r.published.hasCursors()
}

// drop makes the resource unused unless it has cursors or was just read.
func (r *Resource) drop() {
	r.write.Lock()
	defer r.write.Unlock()
	r.unload(false)
}

// end makes the resource unusable because of err, and wakes its cursors.
func (r *Resource) end(err error) {
	r.ended.CompareAndSwap(nil, &err)
	r.write.Lock()
	defer r.write.Unlock()
	r.unload(true)
}

// unload drops all objects and the log, if force is set or the resource is not in use. The caller holds write.
func (r *Resource) unload(force bool) {
	removed := r.removed()
	st, ok := r.published.end(removed, func(st *state, cursors int) bool {
		return force || st != nil && r.loading == nil && cursors == 0 && !r.usage.used.Load()
	})
	if !ok {
		return
	}
	if removed && r.published.last() != nil {
		r.cache.keepRemoved(r)
	}
	r.published.wakeAll()
	r.pending.clear()
	if st != nil && st.loaded {
		r.cache.encodings.releaseAll(st.objects, nil)
	}
}

// removedGrace is how long the log of a removed resource is kept, for cursors that have not read all of it and for
// watches that are still sending their initial events. Meanwhile it counts in the budget of logs, and is trimmed
// like any other log.
const removedGrace = 30 * time.Second

// removed reports whether the resource was removed. Its cursors first read the rest of the log, so that the watchers of
// a deleted definition get the deletion of its last object.
func (r *Resource) removed() bool {
	p := r.ended.Load()
	return p != nil && errors.Is(*p, ErrRemoved)
}
