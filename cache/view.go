package cache

import (
	"context"
	"math"
	"slices"

	"github.com/keelson-dev/keelson/storage"
)

// View is a resource as of one revision. It answers from memory where the objects
// are there, and else reads them from the store, no more than are asked for.
//
// A view of the latest state gets its revision from the first read, and keeps it
// for those that follow. A view is used by one goroutine, for the time of one
// request; its methods fail with *storage.CompactedError once the store has
// forgotten its revision, and with the errors of Resource.View.
type View struct {
	resource *Resource
	// held says that snap answers everything.
	loaded   bool
	snapshot Snapshot
	// min is what View was asked for, and revision that of the reads from the store,
	// 0 until the first one.
	min, revision int64
	// exact says that the revision was asked for.
	exact bool
	// present is the state in memory, which has most objects of a recent revision.
	memory *state
}

// Latest asks Resource.View for everything that was committed before the call.
const Latest = -1

// View returns a view at revision min or a later one; 0 is any state, Latest the
// latest one. It waits for min until ctx ends: past its deadline the error is a
// *storage.FutureRevisionError if the store has not reached min, and else the
// context's.
func (r *Resource) View(ctx context.Context, min int64) (*View, error) {
	for {
		if err := r.err(); err != nil {
			return nil, err
		}
		st := r.state.Load()
		switch {
		case st == nil:
			if err := r.waitLoaded(ctx, false); err != nil {
				return nil, err
			}
			continue
		case !st.loaded:
			r.markUsed()
			if err := r.cache.await(ctx, min); err != nil {
				return nil, err
			}
			return &View{resource: r, min: min, memory: st}, r.err()
		}
		at := min
		if min == Latest {
			var err error
			if at, err = r.cache.Current(ctx); err != nil {
				return nil, err
			}
		}
		snap, ok, err := r.snapshotOf(ctx, at)
		if err != nil {
			return nil, err
		}
		if ok {
			return &View{resource: r, loaded: true, snapshot: snap}, nil
		}
	}
}

// undoEvents is how many events are taken back in memory for a view of the past: more
// cost more than reading a page from the store.
const undoEvents = 512

// ViewAt returns a view of the resource exactly as it was at revision, which has to
// be positive. It fails with *storage.CompactedError when the store has forgotten
// that, whatever is still in memory: all servers on a store answer alike. A revision
// that has not happened is waited for as View does.
func (r *Resource) ViewAt(ctx context.Context, revision int64) (*View, error) {
	if err := r.err(); err != nil {
		return nil, err
	}
	if r.state.Load() == nil {
		if err := r.waitLoaded(ctx, false); err != nil {
			return nil, err
		}
	}
	r.markUsed()
	if err := r.cache.await(ctx, revision); err != nil {
		return nil, err
	}
	// No object has this key, but its revision is checked.
	if _, _, err := r.cache.store.Get(ctx, r.config.Prefix, revision); err != nil {
		return nil, err
	}
	st, since, covered := r.eventsSince(revision, undoEvents)
	switch {
	case r.err() != nil:
		return nil, r.err()
	case covered && st.loaded:
		return &View{resource: r, loaded: true, snapshot: r.snapshot(undo(st.objects, since), revision)}, nil
	}
	return &View{resource: r, revision: revision, exact: true, memory: st}, nil
}

func (r *Resource) markUsed() {
	if !r.usage.used.Load() {
		r.usage.used.Store(true)
	}
}

// Revision is the revision that the view shows. A view of the latest state may not
// know it before something was read.
func (v *View) Revision() int64 {
	if v.loaded {
		return v.snapshot.revision
	}
	return v.revision
}

// Held says that all objects are in memory: Snapshot has them.
func (v *View) Loaded() bool { return v.loaded }

// Snapshot is what a view shows whose objects are in memory.
func (v *View) Snapshot() Snapshot { return v.snapshot }

// Get returns the object with a key (below the resource's prefix).
func (v *View) Get(ctx context.Context, key string) (*Object, bool, error) {
	r := v.resource
	if v.loaded {
		r.usage.reads.Add(pointCharge)
		o, ok := v.snapshot.Get(key)
		return o, ok, nil
	}
	e, at, err := r.cache.store.Get(ctx, r.config.Prefix+key, v.revision)
	if err != nil {
		return nil, false, r.readFailed(err)
	}
	v.revision = at
	r.charge(pointCharge)
	if e.ModRevision == 0 {
		return nil, false, nil
	}
	return v.object(e), true, nil
}

// readFailed returns the error of a read of the store.
func (r *Resource) readFailed(err error) error {
	if ended := r.err(); ended != nil {
		return ended
	}
	return err
}

// object returns the object of an entry, the one in memory where that is the same.
func (v *View) object(e storage.Entry) *Object {
	r := v.resource
	if v.memory != nil && v.memory.loaded {
		if o, ok := v.memory.objects.All().Get(e.Key[len(r.config.Prefix):]); ok && o.Revision == e.ModRevision {
			return o
		}
	}
	o := r.read(e, nil)
	o.allowUnbudgeted()
	return o
}

// Few tells Ascend and Index that the caller goes through all objects and keeps few.
const Streaming = -1

// Ascend calls yield in key order with the objects whose keys begin with prefix and
// are at or above from, until it returns false. most is how many objects the caller
// may want; 0 is all of them, to be kept together, and Few all of them, one after the
// other.
func (v *View) Ascend(ctx context.Context, from, prefix string, most int, yield func(*Object) bool) error {
	end, err := v.startScan(ctx, from, prefix, most)
	if err != nil {
		return err
	}
	defer end()
	if v.loaded {
		n := 0
		v.snapshot.Ascend(from, prefix, func(o *Object) bool { n++; return yield(o) })
		v.resource.usage.reads.Add(int64(float64(n) * chargeOf(most)))
		return nil
	}
	if most == 0 && v.exact {
		objects, err := v.resource.shared.objects(ctx, v, from, prefix)
		for i := 0; i < len(objects) && yield(objects[i]); i++ {
		}
		return err
	}
	return v.read(ctx, from, prefix, most, yield)
}

// scan begins a read of many objects, and returns what ends it. It has the resource
// loaded first where all of its latest state is asked for, or so much of it that
// reading that from the store is charged half as much as a load: the caller keeps as
// many objects in memory anyway. A read that keeps few objects reads the store, but two
// of them at the same time may as well have the objects loaded.
func (v *View) startScan(ctx context.Context, from, prefix string, most int) (end func(), err error) {
	r := v.resource
	end = func() {}
	if v.loaded || v.exact || v.revision != 0 || most > 0 || from != "" || !r.cache.memory.loads() {
		return end, nil
	}
	if prefix != "" {
		if most == Streaming {
			return end, nil
		}
		if worth, err := v.isLoadCheaper(ctx, prefix); !worth || err != nil {
			return end, err
		}
		return end, v.loadAll(ctx)
	}
	if most == Streaming && r.usage.scanning.CompareAndSwap(false, true) {
		return func() { r.usage.scanning.Store(false) }, nil
	}
	return end, v.loadAll(ctx)
}

// worthLoad says whether a read of all objects below prefix raises the sum of charges
// to half of that at which the resource is loaded. It counts no more objects than that
// takes.
func (v *View) isLoadCheaper(ctx context.Context, prefix string) (bool, error) {
	r := v.resource
	n, known := v.memory.number()
	if !known {
		return false, nil
	}
	missing := (r.cache.memory.LoadAfter*float64(max(n, 1))/2 - r.addDemand(0)) / scanCharge
	if missing <= 0 {
		return true, nil
	}
	start := r.config.Prefix + prefix
	result, err := r.cache.store.Range(ctx, storage.RangeRequest{
		Start: start, End: storage.PrefixEnd(start), CountOnly: true, Uncounted: true, Limit: int(math.Ceil(missing)),
	})
	return float64(result.Count) >= missing, r.readFailed(err)
}

// chargeOf is what an object is charged in a read of so many; 0 is all.
func chargeOf(most int) float64 {
	if most > 0 {
		return pageCharge
	}
	return scanCharge
}

// holdAll has the whole resource loaded, and the view answer from memory.
func (v *View) loadAll(ctx context.Context) error {
	r := v.resource
	at, err := v.min, error(nil)
	if at == Latest {
		if at, err = r.cache.Current(ctx); err != nil {
			return err
		}
	}
	v.snapshot, err = r.Snapshot(ctx, at)
	v.loaded = err == nil
	return err
}

// read reads objects from the store, in pages.
func (v *View) read(ctx context.Context, from, prefix string, most int, yield func(*Object) bool) error {
	r := v.resource
	charge := chargeOf(most)
	p := newPages(r.config.Prefix+prefix, r.config.Prefix+from, v.revision, most)
	for !p.done {
		entries, err := p.next(ctx, r.cache.store)
		if err != nil {
			return r.readFailed(err)
		}
		v.revision = p.request.Revision
		r.charge(charge * float64(len(entries)))
		for i := range entries {
			if !yield(v.object(entries[i])) {
				return nil
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Index is Ascend over the objects whose indexed field of that name has that value, and
// over those that cannot be read, of which nobody knows.
// In the store they are found by looking at all; most is how many of those. It returns false, and yields
// nothing, if there is no such index.
func (v *View) Index(
	ctx context.Context, name, value, from, prefix string, most int, yield func(*Object) bool,
) (bool, error) {
	i := slices.Index(v.resource.config.Indexes, name)
	if i < 0 {
		return false, nil
	}
	end, err := v.startScan(ctx, from, prefix, most)
	if err != nil {
		return true, err
	}
	defer end()
	if v.loaded && v.snapshot.Unread() == 0 {
		n := int64(0)
		v.snapshot.Index(name, value, from, prefix, func(o *Object) bool { n++; return yield(o) })
		v.resource.usage.reads.Add(n * pointCharge)
		return true, nil
	}
	yieldMatching := func(o *Object) bool {
		if o.Err() == nil && (i >= len(o.Fields) || o.Fields[i] != value) {
			return true
		}
		return yield(o)
	}
	if v.loaded {
		v.snapshot.Ascend(from, prefix, yieldMatching)
		return true, nil
	}
	return true, v.read(ctx, from, prefix, most, yieldMatching)
}

// Rest is how many objects below prefix are at or above next, of which there has to be
// one. A page that began at from has shown the objects before them, shown in number. A
// large number may be an estimate: nobody goes through many objects to count them.
func (v *View) Remaining(ctx context.Context, prefix, from, next string, shown int) (int64, error) {
	r := v.resource
	at := r.config.Prefix
	key := remainingKey{v.Revision(), at + prefix, at + next}
	n, err := int64(0), error(nil)
	if v.loaded {
		n = int64(v.snapshot.CountPrefix(prefix, next))
	} else {
		n, err = v.countRemaining(ctx, prefix, from, next, shown)
	}
	if err == nil {
		r.cache.remaining.put(key, n)
	}
	return n, err
}

// countRest is Rest for a view of the store: what is known of the page before it, or
// of the whole resource, saves counting.
func (v *View) countRemaining(ctx context.Context, prefix, from, next string, shown int) (int64, error) {
	r := v.resource
	at := r.config.Prefix
	if n, ok := r.cache.remaining.get(remainingKey{v.revision, at + prefix, at + from}); ok && from != "" {
		return max(n-int64(shown), 1), nil
	}
	if prefix == "" && from == "" && r.cache.await(ctx, v.revision) == nil {
		if n, ok := r.numberAt(v.revision); ok {
			return n - int64(shown), nil
		}
	}
	result, err := r.cache.store.Range(ctx, storage.RangeRequest{
		Start: at + max(next, prefix), End: storage.PrefixEnd(at + prefix), Revision: v.revision,
		CountOnly: true, Uncounted: true, Limit: maxCounted,
	})
	if err != nil || !result.More {
		return result.Count, r.readFailed(err)
	}
	return max(result.Count, v.estimateRemaining(prefix, next, shown)), nil
}

// maxCounted bounds the objects that are counted for one page. Beyond it the number of
// those that remain is estimated from the present state.
const maxCounted = 10_000

// presentRest is about how many objects there are at or above next now; 0 if that is
// not known.
func (v *View) estimateRemaining(prefix, next string, shown int) int64 {
	switch st := v.memory; {
	case st == nil:
	case st.loaded:
		return int64(st.objects.All().Count(max(next, prefix), prefix))
	case st.counted && prefix == "":
		return st.count - int64(shown)
	}
	return 0
}
