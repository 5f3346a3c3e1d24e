package cache

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/index"
	"github.com/keelson-dev/keelson/internal/storage/cache/interest"
	"github.com/keelson-dev/keelson/internal/storage/cache/window"
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

	// state is the state that readers use; nil while the resource is unused. It is replaced while both write and mu are
	// held.
	state atomic.Pointer[state]
	ended atomic.Pointer[error] // why the resource ended; nil while it is served
	usage usage

	// write is held by each goroutine that changes the resource: the feed, the end of a load, a drop. It guards
	// loading, waking, checkedBytes and resolver.running. It is locked before mu.
	write        sync.Mutex
	loading      *load           // nil if no load is in progress
	waking       []chan struct{} // to be closed after mu is released, see wakeAll
	checkedBytes int64           // size of the objects when checkMemory last compared it with its limit

	// mu guards changes. It is held for look-ups and to add a batch of events, never during decoding, I/O or waiting.
	mu      sync.RWMutex
	changes changes

	pending  pendingEncodings
	requests requestLog
	shared   sharedReads
	resolver resolver
	// releasing is the number of drops whose objects are still being released in the background.
	releasing atomic.Int32
	incoming  []storage.Event // used by demux only
}

// usage records how a resource is read.
type usage struct {
	used  atomic.Bool  // the resource was read since the last check of dropUnused
	loads atomic.Int64 // number of times that all objects were loaded

	demand demand       // the charges of reads
	reads  atomic.Int64 // charges of reads from memory that are not added to demand yet
	// scanning means that a reader goes through all objects in the store.
	scanning atomic.Bool
	size     atomic.Int64 // objectSize, 0 if it is unknown
	// fullUntil is a time in Unix nanoseconds until which no load is tried, because there is no room for the objects.
	fullUntil atomic.Int64
}

// noteSize records that n objects take so many bytes of memory.
func (u *usage) noteSize(n int, bytes int64) {
	if n > 0 {
		u.size.Store(max(bytes/int64(n), 1))
	}
}

// objectSize returns the average memory of an object, estimated from the last reads.
func (u *usage) objectSize() int64 {
	const unknown = 4 << 10
	return cmp.Or(u.size.Load(), unknown)
}

// changes is the log of a resource's events with the cursors that read it.
type changes struct {
	log       window.Log[*Event]
	interests interest.Index[wakeup]
	wakeup    wakeup // of the cursors that read the whole log
	cursors   int    // number of open cursors
	// busy is the number of cursors that do not wait for an event, see Cache.Busy.
	busy atomic.Int64
	// completeFrom is a position in the log. A cursor below it may have missed events that were never in the log.
	completeFrom uint64
	// counted is the part of logBudget.used that is for this log.
	counted atomic.Int64
}

// state is a resource at one revision. It is immutable.
type state struct {
	revision int64
	loaded   bool               // objects contains all objects
	objects  index.Set[*Object] // empty if not loaded
	bytes    int64              // memory of the objects, without their encodings
	// The following fields are used while the objects are not loaded. If counted, count is the number of objects.
	// Otherwise count is the change of that number since the revision from.
	counted bool
	count   int64
	from    int64
}

// number returns the number of objects, or false if it is unknown.
func (st *state) number() (int64, bool) {
	if st.loaded {
		return int64(st.objects.All().Len()), true
	}
	return st.count, st.counted
}

func newResource(c *Cache, config Config) *Resource {
	r := &Resource{cache: c, config: config}
	r.store = storeReader{&r.config, c.store}
	r.decoder = decoder{&r.config, &c.encodings, c.logger}
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
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := Stats{Cursors: r.changes.cursors, Interests: r.changes.interests.Len(), Loads: r.usage.loads.Load()}
	if st := r.state.Load(); st != nil {
		s.Followed, s.Loaded, s.Revision, s.Bytes = true, st.loaded, st.revision, st.bytes
		s.Events, s.WindowBytes = r.changes.log.Len(), r.changes.log.Bytes()
		n, ok := st.number()
		s.Counted = ok
		if ok {
			s.Objects = int(n)
		}
	}
	return s
}

// err returns the reason why the resource or the cache ended, or nil.
func (r *Resource) err() error {
	if p := r.ended.Load(); p != nil {
		return *p
	}
	return r.cache.err()
}

// receive applies the next events of the feed for this resource. revision is the revision up to which the feed is
// then complete.
func (r *Resource) receive(events []storage.Event, revision int64) {
	r.write.Lock()
	defer r.write.Unlock()
	switch {
	case r.state.Load() != nil:
		r.commit(events, revision)
	case r.loading != nil:
		r.loading.events = append(r.loading.events, events...)
		r.loading.revision = revision
	}
}

// commit applies changes as one batch: the state and the log change together, and then the interested cursors are
// woken. The caller holds write.
func (r *Resource) commit(changes []storage.Event, revision int64) {
	next, events := r.after(r.state.Load(), changes, revision)
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	r.publish(next, events)
	r.mu.Unlock()
	r.published(events, revision)
}

// after returns the state after changes up to revision that follow st, and their events. The caller holds write.
func (r *Resource) after(st *state, changes []storage.Event, revision int64) (*state, []*Event) {
	next := new(state)
	*next = *st
	next.revision = revision
	var edit *index.Edit[*Object]
	if st.loaded {
		edit = st.objects.Edit()
	}
	events := make([]*Event, 0, len(changes))
	for i := range changes {
		if changes[i].Entry.ModRevision <= st.revision {
			continue // seen by the load
		}
		if e := r.change(edit, next, &changes[i]); e != nil {
			events = append(events, e)
		}
	}
	if st.loaded && len(events) > 0 {
		next.objects = edit.Done()
	}
	return next, events
}

// publish makes a state visible, together with the events that led to it. The caller holds write and mu.
func (r *Resource) publish(next *state, events []*Event) {
	for _, e := range events {
		position := r.changes.log.Append(e.Revision, e.cost(), e)
		r.changes.interests.Append(position, e.subject(), r.wakePosting)
	}
	r.trim(next)
	r.state.Store(next)
	r.wake(&r.changes.wakeup)
}

// published does what follows a publish once mu was released. The caller holds write.
func (r *Resource) published(events []*Event, revision int64) {
	if len(events) > 0 {
		r.config.Metrics.Add(CacheEventsReceived, len(events))
		r.config.Metrics.Add(EventsDispatched, len(events))
	}
	r.pending.attach(&r.cache.encodings, events, revision)
	r.wakeAll()
	r.checkMemory()
	r.resolveUnread()
}

// trim removes old events so that the log stays within its bound. The caller holds write and mu.
func (r *Resource) trim(st *state) {
	limit := r.cache.logs.most.Load()
	if !st.loaded && r.loading == nil {
		limit = min(limit, r.cache.memory.LogBytes)
	}
	r.changes.log.Trim(limit, r.releaseEvent)
	r.countLog()
}

// countLog tells the budget the size of the log. The caller holds mu.
func (r *Resource) countLog() {
	now := r.changes.log.Bytes()
	r.cache.logs.add(now - r.changes.counted.Swap(now))
}

// wakeAll closes the channels that wake collected, after mu was released. The caller holds write.
func (r *Resource) wakeAll() {
	for i, ch := range r.waking {
		close(ch)
		r.waking[i] = nil
	}
	r.waking = r.waking[:0]
}

// change makes the event of a change and applies it: to edit if the objects are loaded, and otherwise to the number of
// objects in next. It returns nil for the deletion of an object that does not exist.
func (r *Resource) change(edit *index.Edit[*Object], next *state, c *storage.Event) *Event {
	key := c.Entry.Key[len(r.config.Prefix):]
	e := &Event{Revision: c.Entry.ModRevision, decoder: &r.decoder}
	switch {
	case edit != nil:
		e.Prev, _ = edit.Get(key)
	case c.Prev.ModRevision != 0:
		e.Prev = r.decoder.read(c.Prev, nil)
	}
	if c.Deleted && e.Prev == nil {
		return nil
	}
	if !c.Deleted {
		e.Object = r.decoder.read(c.Entry, e.Prev)
	}
	if edit == nil {
		e.logOnly = e.Object != nil
		switch {
		case e.Prev == nil:
			next.count++
		case c.Deleted:
			next.count--
		}
		return e
	}
	next.bytes += e.Object.memoryBytes() - e.Prev.memoryBytes()
	if c.Deleted {
		edit.Delete(key)
	} else {
		edit.Put(e.Object.Key, e.Object)
	}
	return e
}

// objectOverhead is charged for a loaded object in addition to its data: the Object, its labels and fields, and its
// entries in the trees.
const objectOverhead = 400

// memoryBytes returns the memory of a loaded object without its encodings; 0 for nil.
func (o *Object) memoryBytes() int64 {
	if o == nil {
		return 0
	}
	return objectOverhead + int64(len(o.Key)) + o.size()
}

func (r *Resource) wakePosting(p *interest.Posting[wakeup]) { r.wake(&p.User) }

// wake notifies the cursors that wait at w. Its channel is closed after mu is released, see wakeAll. The caller holds
// write and mu.
func (r *Resource) wake(g *wakeup) {
	if ch := g.reset(); ch != nil {
		r.changes.busy.Add(g.waiting.Swap(0))
		r.waking = append(r.waking, ch)
	}
}

// releaseEvent releases what an event that has left the log kept in memory. The caller holds mu.
func (r *Resource) releaseEvent(position uint64, e *Event) {
	r.changes.interests.Drop(position, e.subject())
	e.releaseEncodings()
	if e.logOnly {
		r.cache.encodings.release(e.Object)
	}
}

// cost returns what the log is charged for an event: the memory that is in use only because of the event. That is the
// previous object with its encodings, a second copy of the previous object for a deletion (see PrevAt), and the object
// itself if the objects are not loaded.
func (e *Event) cost() int64 {
	n := int64(eventOverhead)
	if e.Prev != nil {
		n += e.Prev.size() + e.Prev.encodingBytes()
		if e.Object == nil {
			n += e.Prev.size()
		}
	}
	if e.logOnly {
		n += objectOverhead + e.Object.size()
	}
	return n
}

// subject returns the properties of the event by which package interest finds the cursors.
func (e *Event) subject() interest.Subject {
	o := e.latest()
	s := interest.Subject{Key: o.Key, Namespace: o.Namespace, Name: o.Name}
	if e.Prev != nil {
		s.Old, s.Unreadable = e.Prev.Fields, e.Prev.Err() != nil
	}
	if e.Object != nil {
		s.New = e.Object.Fields
		s.Unreadable = s.Unreadable || e.Object.Err() != nil
	}
	return s
}

// relist brings the resource to the state of the store at revision base, which is above all that the feed has applied.
// If the objects are loaded, their difference is appended to the log. Otherwise the difference is unknown, and the log
// is restarted. A load in progress must then reach base.
func (r *Resource) relist(ctx context.Context, base int64) error {
	r.write.Lock()
	defer r.write.Unlock()
	if r.loading != nil {
		r.loading.atLeast = base
	}
	st := r.state.Load()
	switch {
	case st == nil, r.ended.Load() != nil, st.revision >= base:
		return nil
	case !st.loaded:
		r.restartLog(base)
		return nil
	}
	var changes []storage.Event
	found := make(map[string]struct{}, st.objects.All().Len())
	_, _, err := r.store.scan(ctx, base, func(e storage.Entry) bool {
		old, ok := st.objects.All().Get(e.Key[len(r.config.Prefix):])
		if ok {
			found[old.Key] = struct{}{}
			if old.Revision == e.ModRevision {
				return true
			}
			if old.CreateRevision != e.CreateRevision {
				// This is another object of the same name, so the old one was deleted before.
				changes = append(changes, storage.Event{
					Deleted: true,
					Entry:   storage.Entry{Key: e.Key, ModRevision: e.CreateRevision - 1},
				})
			}
		}
		changes = append(changes, storage.Event{Entry: e})
		return true
	})
	if err != nil {
		return err
	}
	st.objects.All().Ascend("", "", func(o *Object) bool {
		if _, ok := found[o.Key]; !ok {
			changes = append(changes, storage.Event{
				Deleted: true,
				Entry:   storage.Entry{Key: r.config.Prefix + o.Key, ModRevision: base},
			})
		}
		return true
	})
	sort.SliceStable(changes, func(i, j int) bool {
		return changes[i].Entry.ModRevision < changes[j].Entry.ModRevision
	})
	r.mu.Lock()
	r.changes.log.AddGap(max(st.revision, r.cache.feed.applied.Load()), base)
	r.mu.Unlock()
	r.commit(changes, base)
	return nil
}

// inUse reports whether the resource was read since the last call, or has cursors.
func (r *Resource) inUse() bool {
	if r.usage.used.Swap(false) || r.state.Load() == nil {
		return true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changes.cursors > 0
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
	r.mu.Lock()
	st := r.state.Load()
	if !force && (st == nil || r.loading != nil || r.changes.cursors > 0 || r.usage.used.Load()) {
		r.mu.Unlock()
		return
	}
	r.state.Store(nil)
	r.wake(&r.changes.wakeup)
	r.changes.interests.Each(r.wakePosting)
	keep := r.removed() && r.changes.log.Len() > 0
	if !keep {
		r.clearLog()
	}
	waking := slices.Clone(r.waking)
	r.waking = nil
	r.mu.Unlock()
	if keep {
		r.cache.keepRemoved(r)
	}
	for _, ch := range waking {
		close(ch)
	}
	r.pending.clear()
	if st != nil && st.loaded {
		r.releaseEncodings(st.objects, nil)
	}
}

// removedGrace is how long the log of a removed resource is kept, for cursors that have not read all of it and for watches that are still
// sending their initial events. It counts in the budget of logs meanwhile, and is cut like any other.
const removedGrace = 30 * time.Second

// removed reports whether the resource was removed. Its cursors first read the rest of the log, so that the watchers of
// a deleted definition get the deletion of its last object.
func (r *Resource) removed() bool {
	p := r.ended.Load()
	return p != nil && errors.Is(*p, ErrRemoved)
}

// clearLog drops the log. The caller holds mu.
func (r *Resource) clearLog() {
	r.changes.log.Clear(r.releaseEvent)
	r.changes.log.Reset(0)
	r.countLog()
}

// trimRemoved trims the log of a removed resource, which has no state any more.
func (r *Resource) trimRemoved(limit int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes.log.Trim(limit, r.releaseEvent)
	r.countLog()
}

// dropLog drops the log of a removed resource.
func (r *Resource) dropLog() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clearLog()
}

// releaseEncodings drops the encodings of objects that are not loaded any more, except of those in keep.
func (r *Resource) releaseEncodings(objects index.Set[*Object], keep map[*Object]bool) {
	objects.All().Ascend("", "", func(o *Object) bool {
		if !keep[o] {
			r.cache.encodings.release(o)
		}
		return true
	})
	r.cache.encodings.forgetReleased()
}
