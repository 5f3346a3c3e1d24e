package cache

import (
	"context"
	"slices"

	"github.com/keelson-dev/keelson/cache/index"
)

// Snapshot is a resource at one revision. It does not change, costs nothing to
// keep for the time of a request and may be used by several goroutines.
type Snapshot struct {
	objects  index.Set[*Object]
	revision int64
	indexes  []string
}

// Snapshot returns the resource at min or a later revision; 0 is whatever is there.
// It has all objects loaded, however many there are: View is for those who need only
// some. It waits for min as View does.
func (r *Resource) Snapshot(ctx context.Context, min int64) (Snapshot, error) {
	for {
		if err := r.waitLoaded(ctx, true); err != nil {
			return Snapshot{}, err
		}
		if snap, ok, err := r.snapshotOf(ctx, min); ok || err != nil {
			return snap, err
		}
	}
}

// snapshotOf returns a snapshot at min or a later revision, which it waits for; false
// if the objects are not in memory.
func (r *Resource) snapshotOf(ctx context.Context, min int64) (Snapshot, bool, error) {
	r.markUsed()
	for {
		if err := r.err(); err != nil {
			return Snapshot{}, false, err
		}
		// In this order: a state read after applied has all changes up to it.
		applied := r.cache.feed.applied.Load()
		st := r.state.Load()
		switch {
		case st == nil || !st.loaded:
			return Snapshot{}, false, nil
		case min > max(applied, st.revision):
			if err := r.cache.await(ctx, min); err != nil {
				return Snapshot{}, false, err
			}
		default:
			// One that was removed meanwhile may lack the latest changes.
			if err := r.err(); err != nil {
				return Snapshot{}, false, err
			}
			return r.snapshot(st.objects, max(applied, st.revision)), true, nil
		}
	}
}

func (r *Resource) snapshot(objects index.Set[*Object], revision int64) Snapshot {
	return Snapshot{objects, revision, r.config.Indexes}
}

// since returns the state and the events above revision that led to it. The last
// result is false if the log does not know them, or they are more than most.
func (r *Resource) eventsSince(revision int64, limit int) (*state, []*Event, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	st := r.state.Load()
	if st == nil || !r.changes.log.Covers(revision) {
		return st, nil, false
	}
	first := r.changes.log.After(revision)
	if r.changes.log.Next()-first > uint64(limit) {
		return st, nil, false
	}
	events := make([]*Event, 0, r.changes.log.Next()-first)
	for p := first; p < r.changes.log.Next(); p++ {
		events = append(events, r.changes.log.Get(p))
	}
	return st, events, true
}

// undo takes events back, the last one first. Keeping a tree per event instead
// would keep the nodes that each write copied, some kilobytes an event.
func undo(objects index.Set[*Object], events []*Event) index.Set[*Object] {
	if len(events) == 0 {
		return objects
	}
	edit := objects.Edit()
	for _, e := range slices.Backward(events) {
		if e.Prev == nil {
			edit.Delete(e.Object.Key)
		} else {
			edit.Put(e.Prev.Key, e.Prev)
		}
	}
	return edit.Done()
}

// Revision is the revision that the snapshot shows.
func (s Snapshot) Revision() int64 { return s.revision }

// Len is the number of objects.
func (s Snapshot) Len() int { return s.objects.All().Len() }

// Get returns the object with a key (below the resource's prefix).
func (s Snapshot) Get(key string) (*Object, bool) { return s.objects.All().Get(key) }

// Ascend calls yield in key order with the objects whose keys begin with prefix
// and are at or above from, until it returns false. A namespace is the prefix
// "namespace/".
func (s Snapshot) Ascend(from, prefix string, yield func(*Object) bool) {
	s.objects.All().Ascend(from, prefix, yield)
}

// CountPrefix returns how many objects Ascend would yield with these arguments,
// at the cost of two look-ups. Mind the order of the arguments: prefix first.
func (s Snapshot) CountPrefix(prefix, from string) int { return s.objects.All().Count(from, prefix) }

// Index is Ascend over the objects whose indexed field of that name has that
// value. It returns false, and yields nothing, if there is no such index.
func (s Snapshot) Index(name, value, from, prefix string, yield func(*Object) bool) bool {
	i := slices.Index(s.indexes, name)
	if i < 0 {
		return false
	}
	s.objects.WithField(i, value).Ascend(from, prefix, yield)
	return true
}
