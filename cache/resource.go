package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/cache/index"
	"github.com/keelson-dev/keelson/cache/interest"
	"github.com/keelson-dev/keelson/cache/window"
	"github.com/keelson-dev/keelson/storage"
)

// eventOverhead is charged for an event beside the data it keeps alive: the event,
// the object before it and their places in the log and postings.
const eventOverhead = 512

// minLoadPause and maxLoadPause bound the pause before a load begins again because
// the store compacted what it was reading. Each pause is twice the one before.
const (
	minLoadPause = 50 * time.Millisecond
	maxLoadPause = 5 * time.Second
)

// Resource is the cache of one resource. It is unused; followed, with a log of its changes while its objects are
// only in the store; or held, with the log and all objects in memory. Memory decides which.
type Resource struct {
	cache  *Cache
	config Config

	// state is what readers see; nil while unused. It changes under write and mu
	// together.
	state atomic.Pointer[state]
	used  atomic.Bool           // read since tidy last came by
	ended atomic.Pointer[error] // why there will be no more
	loads atomic.Int64

	// demand has the charges of reads; reads are those that were served from
	// memory and are not in it yet.
	demand demand
	reads  atomic.Int64

	// write is held by whoever changes the resource: the feed, the end of a
	// load, a drop. It guards what follows. It comes before mu.
	write   sync.Mutex
	loading *loading
	waking  []chan struct{}
	judged  int64 // bytes held when it was last asked whether they are too many

	// mu guards what cursors share. It is held for look-ups and for adding a
	// batch, never while anything is read, decoded or waited for.
	mu        sync.RWMutex
	log       window.Log[*Event]
	interests interest.Index[gate]
	gate      gate // of the cursors that want everything
	cursors   int
	// complete is the position in the log below which a cursor may have missed
	// events that never were in it.
	complete uint64

	offers   offers
	asked    asked
	scans    scans
	resolver resolver
	// scanning says that a reader goes through all objects in the store.
	scanning atomic.Bool
	// releasing counts the drops whose objects are still to be let go of.
	releasing atomic.Int32

	incoming []storage.Event // the feed's, see demux
}

// state is the resource as of a revision. It does not change.
type state struct {
	revision int64
	// held says that objects are all objects, which take so many bytes.
	held    bool
	objects index.Set[*Object]
	bytes   int64
	// Of a resource that is not held: the number of objects, if it is known. Until
	// then count is how it changed since revision from.
	counted bool
	count   int64
	from    int64
}

// number returns the number of objects, and false if it is unknown.
func (st *state) number() (int64, bool) {
	if st.held {
		return int64(st.objects.All().Len()), true
	}
	return st.count, st.counted
}

// loading is a load in progress: of all objects, or of a few to find out whether there are more.
type loading struct {
	done chan struct{} // closed at the end
	err  error         // why it failed; valid once done
	// whole says that all objects are wanted, however many there are.
	whole atomic.Bool

	// Guarded by Resource.write: the events that the feed brought meanwhile to a
	// resource that was unused, and the revision that the load must reach because
	// the feed missed some.
	events   []storage.Event
	revision int64
	atLeast  int64
}

func newResource(c *Cache, config Config) *Resource {
	return &Resource{cache: c, config: config}
}

// Stats describes a resource.
type Stats struct {
	Followed    bool  // there is a log
	Loaded      bool  // all objects are in memory
	Revision    int64 // of the last change, or of the load
	Objects     int   // in the store; valid if Counted
	Counted     bool
	Bytes       int64 // what the objects in memory take
	Events      int   // in the log
	WindowBytes int64 // what the log keeps alive
	Cursors     int
	Interests   int   // different ones that cursors have
	Loads       int64 // of all objects, since the resource was made
}

// Stats returns the current statistics of the resource. It does not count as a use.
func (r *Resource) Stats() Stats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := Stats{Cursors: r.cursors, Interests: r.interests.Len(), Loads: r.loads.Load()}
	if st := r.state.Load(); st != nil {
		s.Followed, s.Loaded, s.Revision, s.Bytes = true, st.held, st.revision, st.bytes
		s.Events, s.WindowBytes = r.log.Len(), r.log.Bytes()
		n, ok := st.number()
		s.Counted = ok
		if ok {
			s.Objects = int(n)
		}
	}
	return s
}

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
	st := r.state.Load()
	next := new(state)
	*next = *st
	next.revision = revision
	var edit *index.Edit[*Object]
	if st.held {
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
	if len(events) == 0 {
		return
	}
	if st.held {
		next.objects = edit.Done()
	}
	r.mu.Lock()
	for _, e := range events {
		position := r.log.Append(e.Revision, e.cost(), e)
		r.interests.Append(position, e.subject(), r.wakePosting)
	}
	r.trim(next)
	r.state.Store(next)
	r.wake(&r.gate)
	r.mu.Unlock()

	r.offers.take(&r.cache.forms, events, revision)
	r.wakeAll()
	r.judge()
	r.resolveUnread()
}

// trim removes old events so that the log stays within its bound. The caller holds write and mu.
func (r *Resource) trim(st *state) {
	limit := r.cache.windowBytes
	if !st.held && r.loading == nil {
		limit = min(limit, r.cache.memory.LogBytes)
	}
	r.log.Trim(limit, r.trimmed)
}

// wakeAll closes the channels that wake collected, after mu was released. The caller holds write.
func (r *Resource) wakeAll() {
	for i, ch := range r.waking {
		close(ch)
		r.waking[i] = nil
	}
	r.waking = r.waking[:0]
}

// change makes the event of a change, nil if it changes nothing, and applies it: to
// the edit of the objects that are held, or to the number of those that are not.
func (r *Resource) change(edit *index.Edit[*Object], next *state, c *storage.Event) *Event {
	key := c.Entry.Key[len(r.config.Prefix):]
	e := &Event{Revision: c.Entry.ModRevision, resource: r}
	switch {
	case edit != nil:
		e.Prev, _ = edit.Get(key)
	case c.Prev.ModRevision != 0:
		e.Prev = r.read(c.Prev, nil)
	}
	if c.Deleted && e.Prev == nil {
		return nil
	}
	if !c.Deleted {
		e.Object = r.read(c.Entry, e.Prev)
	}
	if edit == nil {
		e.alone = e.Object != nil
		switch {
		case e.Prev == nil:
			next.count++
		case c.Deleted:
			next.count--
		}
		return e
	}
	next.bytes += e.Object.heldBytes() - e.Prev.heldBytes()
	if c.Deleted {
		edit.Delete(key)
	} else {
		edit.Put(e.Object.Key, e.Object)
	}
	return e
}

// objectOverhead is charged for an object that is held beside its data: the object,
// its labels and fields, and its place in the trees.
const objectOverhead = 400

// heldBytes returns the memory of an object that is held, without forms; 0 for nil.
func (o *Object) heldBytes() int64 {
	if o == nil {
		return 0
	}
	return objectOverhead + int64(len(o.Key)) + o.size()
}

func (r *Resource) wakePosting(p *interest.Posting[gate]) { r.wake(&p.Wait) }

// wake opens a gate. Its channel is closed after mu is released.
func (r *Resource) wake(g *gate) {
	if ch := g.open(); ch != nil {
		r.waking = append(r.waking, ch)
	}
}

// trimmed lets go of an event that has left the log.
func (r *Resource) trimmed(position uint64, e *Event) {
	r.interests.Drop(position, e.subject())
	e.release()
	if e.alone {
		r.cache.forms.release(e.Object)
	}
}

// cost is what the log is charged for an event: what lives on only because the
// log holds it. That is the object before with its forms, a second copy of that
// object in a deletion, and the object after where objects are not held.
func (e *Event) cost() int64 {
	n := int64(eventOverhead)
	if e.Prev != nil {
		n += e.Prev.size() + e.Prev.formBytes()
		if e.Object == nil {
			n += e.Prev.size()
		}
	}
	if e.alone {
		n += objectOverhead + e.Object.size()
	}
	return n
}

func (e *Event) subject() interest.Subject {
	o := e.object()
	s := interest.Subject{Key: o.Key, Namespace: o.Namespace, Name: o.Name}
	if e.Prev != nil {
		s.Old, s.Unknown = e.Prev.Fields, e.Prev.Err() != nil
	}
	if e.Object != nil {
		s.New = e.Object.Fields
		s.Unknown = s.Unknown || e.Object.Err() != nil
	}
	return s
}

// ready returns once the resource is followed or, if whole is set, held. A load
// goes on when the caller that began it no longer waits.
func (r *Resource) ready(ctx context.Context, whole bool) error {
	for {
		r.write.Lock()
		if err := r.err(); err != nil {
			r.write.Unlock()
			return err
		}
		if st := r.state.Load(); st != nil && (st.held || !whole) {
			r.write.Unlock()
			return nil
		}
		l := r.begin(whole)
		r.write.Unlock()
		if l == nil {
			return storage.ErrClosed
		}
		select {
		case <-l.done:
			if l.err != nil {
				return l.err
			}
		case <-ctx.Done():
			return fmt.Errorf("cache: loading %s: %w", r.config.Resource, ctx.Err())
		}
	}
}

// begin returns the load that is under way, or begins one; nil if the cache is
// closed. The caller holds write.
func (r *Resource) begin(whole bool) *loading {
	l := r.loading
	if l == nil {
		l = &loading{done: make(chan struct{})}
		l.whole.Store(whole)
		r.loading = l
		if !r.cache.spawn(func() { r.run(l) }) {
			r.loading = nil
			return nil
		}
	}
	if whole {
		l.whole.Store(true)
	}
	return l
}

// run loads the resource. What changes meanwhile is collected by receive: all of
// it from before the store is read on, so nothing is missed between the two.
func (r *Resource) run(l *loading) {
	select {
	case <-r.cache.started:
	case <-r.cache.ctx.Done():
	}
	var err error
	for wait := minLoadPause; ; wait = min(2*wait, maxLoadPause) {
		var f fetched
		f, err = r.fetch(r.cache.ctx, l)
		if err == nil && r.state.Load() != nil {
			// The log has all changes that the objects have.
			err = r.cache.await(r.cache.ctx, f.revision)
		}
		if err == nil && r.install(l, f) || err != nil && !isCompacted(err) {
			break
		}
		// It took longer than the store keeps history, or the log. Where that
		// repeats, the pauses leave the store time for others.
		r.cache.logger.Warn("cache: a load did not end with a state to go on from, trying again",
			"resource", r.config.Resource, "after", wait, "error", err)
		if !r.cache.pause(wait) {
			err = storage.ErrClosed
			break
		}
	}
	if err != nil {
		r.write.Lock()
		if ended := r.err(); ended != nil {
			err = ended
		}
		l.err = fmt.Errorf("cache: loading %s: %w", r.config.Resource, err)
		r.loading = nil
		r.write.Unlock()
	}
	close(l.done)
}

// fetched is what a load read: all objects, or only that there are many.
type fetched struct {
	all      bool
	objects  index.Set[*Object]
	bytes    int64
	revision int64
}

// fetch reads the objects from the store. Unless all are wanted it ends when they
// are too many for a small resource.
func (r *Resource) fetch(ctx context.Context, l *loading) (fetched, error) {
	var bytes int64
	n := 0
	edit := r.newObjects().Edit()
	all, revision, err := r.cache.scan(ctx, r.config.Prefix, 0, func(e storage.Entry) bool {
		o := r.read(e, nil)
		edit.Put(o.Key, o)
		n, bytes = n+1, bytes+o.heldBytes()
		return l.whole.Load() || r.cache.memory.small(n, bytes)
	})
	return fetched{all: all, objects: edit.Done(), bytes: bytes, revision: revision}, err
}

// install ends a load with what it read. It returns false if that is not recent
// enough, or does not suffice any more.
func (r *Resource) install(l *loading, f fetched) bool {
	r.write.Lock()
	defer r.write.Unlock()
	st := r.state.Load()
	switch {
	case r.err() != nil:
		l.err = fmt.Errorf("cache: loading %s: %w", r.config.Resource, r.err())
	case f.revision < l.atLeast, !f.all && l.whole.Load():
		return false
	case st == nil:
		r.enter(f, max(f.revision, l.revision), l.events)
	case f.all && !r.hold(f):
		return false
	}
	r.loading = nil
	return true
}

// enter makes an unused resource held or followed. The caller holds write.
func (r *Resource) enter(f fetched, revision int64, events []storage.Event) {
	r.used.Store(true)
	st := &state{revision: f.revision, held: f.all, from: f.revision}
	if f.all {
		r.loads.Add(1)
		st.objects, st.bytes = f.objects, f.bytes
		r.wanted(float64(f.objects.All().Len()))
	}
	r.mu.Lock()
	r.log.Reset(f.revision)
	r.state.Store(st)
	r.mu.Unlock()
	r.commit(events, revision)
	r.resolveUnread()
	if !f.all {
		r.cache.spawn(func() { r.countAt(f.revision) })
	}
}

// relist brings a resource to the store's state at revision base, which is above all
// that the feed has applied. The difference to the objects that are held is entered
// in the log; without them nobody knows it, and the log begins anew. A load under
// way is told to reach base.
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
	case !st.held:
		r.interrupt(base)
		return nil
	}
	var changes []storage.Event
	found := make(map[string]struct{}, st.objects.All().Len())
	_, _, err := r.cache.scan(ctx, r.config.Prefix, base, func(e storage.Entry) bool {
		old, ok := st.objects.All().Get(e.Key[len(r.config.Prefix):])
		if ok {
			found[old.Key] = struct{}{}
			if old.Revision == e.ModRevision {
				return true
			}
			if old.CreateRevision != e.CreateRevision {
				// Another object of that name: the old one was deleted
				// before this one was created.
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
	r.log.Hole(max(st.revision, r.cache.applied.Load()), base)
	r.mu.Unlock()
	r.commit(changes, base)
	return nil
}

// inUse says whether the resource was in use since the last call.
func (r *Resource) inUse() bool {
	if r.used.Swap(false) || r.state.Load() == nil {
		return true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.cursors > 0
}

// drop unloads the resource unless somebody watches it.
func (r *Resource) drop() {
	r.write.Lock()
	defer r.write.Unlock()
	r.unload(false)
}

// end unloads the resource for good and wakes its cursors.
func (r *Resource) end(err error) {
	r.ended.CompareAndSwap(nil, &err)
	r.write.Lock()
	defer r.write.Unlock()
	r.unload(true)
}

// unload lets go of all objects and of the log. The caller holds write.
func (r *Resource) unload(force bool) {
	r.mu.Lock()
	st := r.state.Load()
	if !force && (st == nil || r.loading != nil || r.cursors > 0 || r.used.Load()) {
		r.mu.Unlock()
		return
	}
	r.state.Store(nil)
	r.wake(&r.gate)
	r.interests.Each(r.wakePosting)
	r.log.Clear(r.trimmed)
	r.log.Reset(0)
	waking := slices.Clone(r.waking)
	r.waking = nil
	r.mu.Unlock()
	for _, ch := range waking {
		close(ch)
	}
	r.offers.drop()
	if st != nil && st.held {
		r.releaseForms(st.objects, nil)
	}
}

// releaseForms gives up the forms of objects that are not held any more, but of
// those that something else keeps.
func (r *Resource) releaseForms(objects index.Set[*Object], keep map[*Object]bool) {
	objects.All().Ascend("", "", func(o *Object) bool {
		if !keep[o] {
			r.cache.forms.release(o)
		}
		return true
	})
	r.cache.forms.sweep()
}

// spawn runs f unless the cache is closed; Close waits for it.
func (c *Cache) spawn(f func()) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if errors.Is(c.ctx.Err(), context.Canceled) {
		return false
	}
	c.tasks.Go(f)
	return true
}
