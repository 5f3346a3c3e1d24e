package cache

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/keelson-dev/keelson/internal/storage"
)

// View gives access to the objects of a resource at one revision. If the objects are loaded, it reads them from
// memory. Otherwise it reads from the store, and only what the caller requests.
//
// The first read of a view of the latest state fixes the revision of the view. A view is used by one goroutine, for the
// time of one request. Its methods return a *storage.CompactedError after the store has compacted its revision, and the
// errors of Resource.View.
type View struct {
	resource *Resource
	// loaded means that all reads use snapshot.
	loaded   bool
	snapshot Snapshot
	// min is the revision that the caller required. revision is the revision of the reads from the store, 0 before
	// the first one.
	min, revision int64
	// exact means that the caller chose the revision, see ViewAt.
	exact bool
	// from is the reader that the view uses instead of the store, nil for the store, see ViewPast.
	from reader
	// memory is the state in memory at the time when the view was created. The view takes an object from it if the
	// object has not changed since.
	memory *state
}

// Latest as the revision of a view requires that the view contains all changes that were committed before the call
// of Resource.View.
const Latest = -1

// View returns a view at revision min or a later one. 0 means any revision, Latest the latest one. It waits for min
// until ctx ends. After the deadline of ctx the error is a *storage.FutureRevisionError if the store has not reached
// min, and otherwise the error of ctx.
func (r *Resource) View(ctx context.Context, min int64) (*View, error) {
	for {
		if err := r.err(); err != nil {
			return nil, err
		}
		st := r.published.state.Load()
		switch {
		case st == nil:
			if err := r.waitLoaded(ctx, 0); err != nil {
				return nil, err
			}
			continue
		case !st.loaded:
			r.usage.mark()
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

// undoEvents limits the events that are reverted in memory for a view of an old revision. Reverting more costs more
// than reading a page from the store.
const undoEvents = 512

// ViewAt returns a view of the resource exactly at revision, which must be positive. It returns a
// *storage.CompactedError if the store has compacted the revision, even if the objects are still in memory, so that all
// servers on a store give the same answer. It waits for a future revision as View does.
func (r *Resource) ViewAt(ctx context.Context, revision int64) (*View, error) {
	if err := r.err(); err != nil {
		return nil, err
	}
	if r.published.state.Load() == nil {
		if err := r.waitLoaded(ctx, 0); err != nil {
			return nil, err
		}
	}
	r.usage.mark()
	if err := r.cache.await(ctx, revision); err != nil {
		return nil, err
	}
	if err := r.store.check(ctx, r.store.store, revision); err != nil {
		return nil, err
	}
	st, since, covered := r.published.eventsSince(revision, undoEvents)
	switch {
	case r.err() != nil:
		return nil, r.err()
	case covered && st.loaded:
		return &View{resource: r, loaded: true, snapshot: Snapshot{undo(st.objects, since), revision, r.config.Indexes}}, nil
	}
	return &View{resource: r, revision: revision, exact: true, memory: st}, nil
}

// Revision returns the revision of the view. For a view of the latest state it may be 0 until the first read.
func (v *View) Revision() int64 {
	if v.loaded {
		return v.snapshot.revision
	}
	return v.revision
}

// Loaded reports whether all objects are in memory, so that Snapshot returns them.
func (v *View) Loaded() bool { return v.loaded }

// Snapshot returns the objects of a view for which Loaded returns true.
func (v *View) Snapshot() Snapshot { return v.snapshot }

// Get returns the object with a key (below the prefix of the resource), or false if there is none.
func (v *View) Get(ctx context.Context, key string) (*Object, bool, error) {
	return v.get(ctx, key, pointCharge)
}

// GetForDeletion is like Get, for an object that is about to be deleted. Such an object will not be read again, so
// this read does not count as a reason to load the resource.
func (v *View) GetForDeletion(ctx context.Context, key string) (*Object, bool, error) {
	return v.get(ctx, key, 0)
}

func (v *View) get(ctx context.Context, key string, charge int64) (*Object, bool, error) {
	r := v.resource
	if v.loaded {
		r.usage.reads.Add(charge)
		o, ok := v.snapshot.Get(key)
		return o, ok, nil
	}
	e, at, err := r.store.get(ctx, v.reader(), r.config.Prefix+key, v.revision)
	if err != nil {
		return nil, false, r.readFailed(err)
	}
	v.revision = at
	r.charge(float64(charge))
	if e.ModRevision == 0 {
		return nil, false, nil
	}
	return v.object(e), true, nil
}

// reader returns the reader that the view uses.
func (v *View) reader() reader {
	if v.from != nil {
		return v.from
	}
	return v.resource.store.store
}

// readFailed returns the error for a failed read of the store: the error that ended the resource, or err if it has
// not ended.
func (r *Resource) readFailed(err error) error {
	if ended := r.err(); ended != nil {
		return ended
	}
	return err
}

// object returns the object of an entry: the one in memory if it has the same revision, or else a new one.
func (v *View) object(e storage.Entry) *Object {
	r := v.resource
	if v.memory != nil && v.memory.loaded {
		if o, ok := v.memory.objects.All().Get(e.Key[len(r.config.Prefix):]); ok && o.Revision == e.ModRevision {
			return o
		}
	}
	o := r.decoder.read(e, nil)
	o.allowUnbudgeted()
	return o
}

// Streaming and StreamingAll are values of most for Ascend and Index. They are for callers that read all objects
// one after the other and keep only a few of them: Streaming if they select among the objects, StreamingAll if
// they need every object.
const (
	Streaming    = -1
	StreamingAll = -2
)

// Ascend calls yield in the order of keys with the objects whose keys begin with prefix and are not below from, until
// yield returns false. most is the largest number of objects that the caller may use; 0 means all. Unless Loaded
// returns true, the objects are not in memory, and the caller has to limit how many it retains.
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
		objects, more, err := v.resource.shared.objects(ctx, v, from, prefix)
		for _, o := range objects {
			if !yield(o) {
				return nil
			}
		}
		if !more || err != nil {
			return err
		}
		from = objects[len(objects)-1].Key + "\x00"
	}
	return v.read(ctx, from, prefix, most, yield)
}

// startScan prepares a read of many objects, and returns a function that must be called at the end of the read. It
// may load the resource first, if the resource is not larger than Memory.ScanBytes: for a read of the latest state
// of all objects, or of so many that their charge is half the charge of a load. A streaming read is served from
// the store, unless another streaming read is in progress; then the resource is loaded.
func (v *View) startScan(ctx context.Context, from, prefix string, most int) (end func(), err error) {
	r := v.resource
	end = func() {}
	if v.loaded || v.exact || v.revision != 0 || most > 0 || from != "" || !r.cache.memory.loads() {
		return end, nil
	}
	if prefix != "" {
		if most < 0 {
			return end, nil
		}
		if worth, err := v.isLoadCheaper(ctx, prefix); !worth || err != nil {
			return end, err
		}
		return end, v.loadForScan(ctx)
	}
	if most < 0 && r.usage.scanning.CompareAndSwap(false, true) {
		return func() { r.usage.scanning.Store(false) }, nil
	}
	return end, v.loadForScan(ctx)
}

// loadForScan loads the resource, if it is small enough to be loaded for one read.
func (v *View) loadForScan(ctx context.Context) error {
	if !v.isSmallScan(ctx) {
		return nil
	}
	if err := v.loadAll(ctx); !errors.Is(err, errTooLarge) {
		return err
	}
	return nil // it is larger than it was estimated to be
}

// isSmallScan reports whether all objects of the resource are estimated to take no more than Memory.ScanBytes. If
// their number is unknown, it counts the objects, but no more than necessary.
func (v *View) isSmallScan(ctx context.Context) bool {
	r := v.resource
	most := r.cache.memory.ScanBytes / r.usage.objectSize()
	if r.usage.isFull() {
		return false
	}
	if st := r.published.state.Load(); st != nil {
		if n, known := st.number(); known {
			return n <= most
		}
	}
	n, err := r.store.count(ctx, "", 0, int(most)+1)
	return err == nil && n <= most
}

// isLoadCheaper reports whether a read of all objects below prefix raises the demand to at least half the demand
// at which the resource is loaded. It counts no more objects than necessary.
func (v *View) isLoadCheaper(ctx context.Context, prefix string) (bool, error) {
	r := v.resource
	n, known := v.memory.number()
	if !known {
		return false, nil
	}
	missing := (r.cache.memory.LoadAfter*float64(max(n, 1))/2 - r.usage.charge(0)) / scanCharge
	if missing <= 0 {
		return true, nil
	}
	counted, err := r.store.count(ctx, prefix, 0, int(math.Ceil(missing)))
	return float64(counted) >= missing, r.readFailed(err)
}

// chargeOf returns the charge per object of a read that is limited to most objects; 0 means no limit.
func chargeOf(most int) float64 {
	switch {
	case most > 0:
		return pageCharge
	case most == StreamingAll:
		return wholeCharge
	}
	return scanCharge
}

// loadAll loads the resource, so that the view reads from memory. If the resource is larger than Memory.ScanBytes,
// it returns errTooLarge.
func (v *View) loadAll(ctx context.Context) error {
	r := v.resource
	at, err := v.min, error(nil)
	if at == Latest {
		if at, err = r.cache.Current(ctx); err != nil {
			return err
		}
	}
	v.snapshot, err = r.loadedSnapshot(ctx, at, r.cache.memory.ScanBytes)
	v.loaded = err == nil
	return err
}

// read reads objects from the store, page by page.
func (v *View) read(ctx context.Context, from, prefix string, most int, yield func(*Object) bool) error {
	r := v.resource
	charge := chargeOf(most)
	if most == 0 {
		charge = wholeCharge
	}
	p := newPages(r.config.Prefix+prefix, r.config.Prefix+from, v.revision, most)
	for !p.done {
		entries, err := p.next(ctx, &r.store, v.reader())
		if err != nil {
			return r.readFailed(err)
		}
		v.revision = p.request.Revision
		r.charge(charge * float64(len(entries)))
		for i := range entries {
			o := v.object(entries[i])
			entries[i] = storage.Entry{} // yield may take long
			if !yield(o) {
				return nil
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Index is like Ascend, but yields only the objects whose indexed field name has the given value, and all unread
// objects, whose fields are unknown. A read from the store examines the objects one by one, and if most is
// positive, no more than that number. Index yields nothing and returns false if there is no such index.
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

// Remaining returns the number of objects with the prefix that are not below next. There must be at least one. The
// previous page began at from and had shown objects. If the number is large, the result may be an estimate,
// because counting many objects is expensive.
func (v *View) Remaining(ctx context.Context, prefix, from, next string, shown int) (int64, error) {
	if v.loaded {
		return int64(v.snapshot.CountPrefix(prefix, next)), nil
	}
	n, err := v.countRemaining(ctx, prefix, from, next, shown)
	if err == nil {
		r := v.resource
		r.cache.remaining.put(remainingKey{r.config.Prefix + prefix, r.config.Prefix + next}, n)
	}
	return n.number, err
}

// countRemaining computes Remaining for a view of the store. It does not count if it can compute the number: from
// the number after the previous page, from the number of all objects, or from the number at an earlier revision.
func (v *View) countRemaining(ctx context.Context, prefix, from, next string, shown int) (remainingCount, error) {
	r, n := v.resource, remainingCount{revision: v.revision}
	at := r.config.Prefix
	last, ok := r.cache.remaining.get(remainingKey{at + prefix, at + from})
	if ok && from != "" && last.revision == v.revision {
		n.number, n.more = max(last.number-int64(shown), 1), last.more
		return n, nil
	}
	if prefix == "" && from == "" && r.cache.await(ctx, v.revision) == nil {
		if all, ok := r.published.numberAt(v.revision, r.cache.Applied()); ok {
			n.number = all - int64(shown)
			return n, nil
		}
	}
	if earlier, ok := r.cache.remaining.get(remainingKey{at + prefix, at + next}); ok {
		added, ok := r.published.added(earlier.revision, v.revision, r.cache.Applied(), prefix, next)
		if n.number, n.more = earlier.number+added, earlier.more; ok && n.number > 0 && !(n.more && added < 0) {
			return n, nil
		}
	}
	result, err := r.store.getRange(ctx, v.reader(), storage.RangeRequest{
		Start: at + max(next, prefix), End: storage.PrefixEnd(at + prefix), Revision: v.revision,
		CountOnly: true, Uncounted: true, Limit: maxCounted,
	})
	n.number, n.more = result.Count, result.More
	if err == nil && n.more {
		n.number = max(n.number, v.estimateRemaining(prefix, next, shown))
	}
	return n, r.readFailed(err)
}

// maxCounted bounds how many objects are counted for one page. A larger number is estimated from the state in memory.
const maxCounted = 10_000

// estimateRemaining returns the current number of objects that are not below next. It returns 0 if that is unknown.
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
