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

// Resource is the cache of one resource: unloaded, loading or loaded.
type Resource struct {
	cache  *Cache
	config Config

	// state is what readers see; nil unless loaded. It changes under write and
	// mu together.
	state atomic.Pointer[state]
	used  atomic.Bool           // read since tidy last came by
	ended atomic.Pointer[error] // why there will be no more
	loads atomic.Int64

	// write is held by whoever changes the resource: the feed, the end of a
	// load, a drop. It guards loading and waking. It comes before mu.
	write   sync.Mutex
	loading *loading
	waking  []chan struct{}

	// mu guards what cursors share. It is held for look-ups and for adding a
	// batch, never while anything is read, decoded or waited for.
	mu        sync.RWMutex
	log       window.Log[*Event]
	interests interest.Index[gate]
	gate      gate // of the cursors that want everything
	cursors   int

	offers   offers
	past     past
	asked    asked
	resolver resolver

	incoming []storage.Event // the feed's, see demux
}

// state is the resource as of a revision. It does not change.
type state struct {
	objects  index.Set[*Object]
	revision int64
}

// loading is a load under way.
type loading struct {
	done chan struct{} // closed at the end
	err  error         // why it failed; valid once done

	// Guarded by Resource.write: the events that the feed brought meanwhile, and
	// the revision that the load must reach because the feed missed some.
	events   []storage.Event
	revision int64
	atLeast  int64
}

func newResource(c *Cache, config Config) *Resource {
	return &Resource{cache: c, config: config}
}

// Config returns what the resource was made with.
func (r *Resource) Config() Config { return r.config }

// Stats describes a resource.
type Stats struct {
	Loaded      bool
	Revision    int64 // of the last change, or of the load
	Objects     int
	Events      int   // in the log
	WindowBytes int64 // what the log keeps alive
	Cursors     int
	Interests   int   // different ones that cursors have
	Loads       int64 // since the resource was made
}

// Stats describes the resource now. It does not count as use.
func (r *Resource) Stats() Stats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := Stats{Cursors: r.cursors, Interests: r.interests.Len(), Loads: r.loads.Load()}
	if st := r.state.Load(); st != nil {
		s.Loaded, s.Revision, s.Objects = true, st.revision, st.objects.All().Len()
		s.Events, s.WindowBytes = r.log.Len(), r.log.Bytes()
	}
	return s
}

func (r *Resource) err() error {
	if p := r.ended.Load(); p != nil {
		return *p
	}
	return r.cache.err()
}

// receive takes the feed's next events of this resource; revision is the
// revision up to which the feed is complete with them.
func (r *Resource) receive(events []storage.Event, revision int64) {
	r.write.Lock()
	defer r.write.Unlock()
	switch {
	case r.loading != nil:
		r.loading.events = append(r.loading.events, events...)
		r.loading.revision = revision
	case r.state.Load() != nil:
		r.commit(events, revision)
	}
}

// commit applies changes as one batch: state and log move together, then those
// whom it concerns are woken. The caller holds write.
func (r *Resource) commit(changes []storage.Event, revision int64) {
	st := r.state.Load()
	edit := st.objects.Edit()
	events := make([]*Event, 0, len(changes))
	for i := range changes {
		if changes[i].Entry.ModRevision <= st.revision {
			continue // seen by the load
		}
		if e := r.change(edit, &changes[i]); e != nil {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return
	}
	next := &state{objects: edit.Done(), revision: revision}

	r.mu.Lock()
	for _, e := range events {
		position := r.log.Append(e.Revision, e.cost(), e)
		r.interests.Append(position, e.subject(), r.wakePosting)
	}
	r.log.Trim(r.cache.windowBytes, r.trimmed)
	r.state.Store(next)
	r.wake(&r.gate)
	r.mu.Unlock()

	r.offers.take(&r.cache.forms, events, revision)
	for i, ch := range r.waking {
		close(ch)
		r.waking[i] = nil
	}
	r.waking = r.waking[:0]
	r.resolveUnread()
}

// change applies one change to the edit; nil if it changes nothing.
func (r *Resource) change(edit *index.Edit[*Object], c *storage.Event) *Event {
	key := c.Entry.Key[len(r.config.Prefix):]
	e := &Event{Revision: c.Entry.ModRevision, resource: r}
	if c.Deleted {
		prev, removed := edit.Delete(key)
		if !removed {
			return nil
		}
		e.Prev = prev
		return e
	}
	prev, _ := edit.Get(key)
	e.Prev, e.Object = prev, r.read(c.Entry, prev)
	edit.Put(e.Object.Key, e.Object)
	return e
}

func (r *Resource) wakePosting(p *interest.Posting[gate]) { r.wake(&p.Wait) }

// wake opens a gate; its channel is closed when mu is free again.
func (r *Resource) wake(g *gate) {
	if ch := g.open(); ch != nil {
		r.waking = append(r.waking, ch)
	}
}

func (r *Resource) trimmed(position uint64, e *Event) {
	r.interests.Drop(position, e.subject())
	e.release()
}

// cost is what the log is charged for an event: what lives on only because the
// log holds it is the object before with its forms, and a second copy of that object
// in a deletion.
func (e *Event) cost() int64 {
	n := int64(eventOverhead)
	if e.Prev != nil {
		n += e.Prev.size() + e.Prev.formBytes()
		if e.Object == nil {
			n += e.Prev.size()
		}
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

// load returns once the resource is loaded. A load goes on when the caller that
// began it no longer waits.
func (r *Resource) load(ctx context.Context) error {
	r.write.Lock()
	if err := r.err(); err != nil {
		r.write.Unlock()
		return err
	}
	if r.state.Load() != nil {
		r.write.Unlock()
		return nil
	}
	l := r.loading
	if l == nil {
		l = &loading{done: make(chan struct{})}
		r.loading = l
		if !r.cache.spawn(func() { r.run(l) }) {
			r.loading = nil
			r.write.Unlock()
			return storage.ErrClosed
		}
	}
	r.write.Unlock()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return fmt.Errorf("cache: loading %s: %w", r.config.Resource, ctx.Err())
	}
}

// run loads the resource. What changes meanwhile is collected by receive: all of
// it from before the store is read on, so nothing is missed between the two.
func (r *Resource) run(l *loading) {
	defer close(l.done)
	select {
	case <-r.cache.started:
	case <-r.cache.ctx.Done():
	}
	for wait := minLoadPause; ; {
		objects, revision, err := r.fetch(r.cache.ctx, 0)
		if isCompacted(err) {
			// It took longer than the store keeps history. Where that repeats, the
			// pauses leave the store time for others.
			r.cache.logger.Warn("cache: a load took longer than the store keeps history, trying again",
				"resource", r.config.Resource, "after", wait, "error", err)
			if r.cache.pause(wait) {
				wait = min(2*wait, maxLoadPause)
				continue
			}
			err = storage.ErrClosed
		}
		r.write.Lock()
		if err == nil {
			err = r.err()
		}
		if err == nil && revision < l.atLeast {
			r.write.Unlock()
			continue
		}
		r.loading = nil
		if err != nil {
			if ended := r.err(); ended != nil {
				err = ended
			}
			l.err = fmt.Errorf("cache: loading %s: %w", r.config.Resource, err)
		} else {
			r.install(objects, revision)
			r.commit(l.events, max(revision, l.revision))
			r.resolveUnread()
		}
		r.write.Unlock()
		return
	}
}

// install makes the resource loaded. The caller holds write.
func (r *Resource) install(objects index.Set[*Object], revision int64) {
	r.loads.Add(1)
	r.used.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Reset(revision)
	r.state.Store(&state{objects, revision})
}

// fetch reads all objects from the store as of a revision, 0 being the latest.
// Objects of the current state are used where they are the same.
func (r *Resource) fetch(ctx context.Context, revision int64) (index.Set[*Object], int64, error) {
	st := r.state.Load()
	edit := r.newObjects().Edit()
	at, err := r.cache.scan(ctx, r.config.Prefix, revision, func(e storage.Entry) {
		if st == nil {
			o := r.read(e, nil)
			edit.Put(o.Key, o)
			return
		}
		o, ok := st.objects.All().Get(e.Key[len(r.config.Prefix):])
		if !ok || o.Revision != e.ModRevision {
			o = r.readLoose(e)
		}
		edit.Put(o.Key, o)
	})
	return edit.Done(), at, err
}

// relist brings a loaded resource to the store's state at revision base, which is
// above all that the feed has applied, and enters the difference in the log. A
// load under way is told to reach base.
func (r *Resource) relist(ctx context.Context, base int64) error {
	r.write.Lock()
	defer r.write.Unlock()
	if r.loading != nil {
		r.loading.atLeast = base
		return nil
	}
	st := r.state.Load()
	if st == nil || r.ended.Load() != nil || st.revision >= base {
		return nil
	}
	var changes []storage.Event
	found := make(map[string]struct{}, st.objects.All().Len())
	_, err := r.cache.scan(ctx, r.config.Prefix, base, func(e storage.Entry) {
		old, ok := st.objects.All().Get(e.Key[len(r.config.Prefix):])
		if ok {
			found[old.Key] = struct{}{}
			if old.Revision == e.ModRevision {
				return
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

// tidy forgets what was kept for a reader that did not come back. It returns
// whether the resource was in use since the last call.
func (r *Resource) tidy() bool {
	r.past.tidy()
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

// unload lets go of all objects. The caller holds write.
func (r *Resource) unload(force bool) {
	r.mu.Lock()
	st := r.state.Load()
	if !force && (st == nil || r.cursors > 0 || r.used.Load()) {
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
	r.past.drop()
	if st != nil {
		st.objects.All().Ascend("", "", func(o *Object) bool {
			r.cache.forms.release(o)
			return true
		})
		r.cache.forms.sweep()
	}
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
