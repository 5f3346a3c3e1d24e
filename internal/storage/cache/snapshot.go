package cache

import (
	"context"
	"math"
	"slices"

	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

// Snapshot contains the objects of a resource at one revision. It is immutable, so several goroutines may use it.
// It keeps these objects in memory, and so should not be used for longer than one request.
type Snapshot struct {
	objects  index.Set[*Object]
	revision int64
	indexes  []string
}

// Snapshot returns a snapshot at revision min or a later one. With min 0, it has the revision that is in memory.
// It loads all objects, however many there are; a caller that needs only some of them uses View. It waits for min
// as View does.
func (r *Resource) Snapshot(ctx context.Context, min int64) (Snapshot, error) {
	return r.loadedSnapshot(ctx, min, math.MaxInt64)
}

// loadedSnapshot is like Snapshot, but returns errTooLarge if the objects are not in memory yet and take more than
// limit bytes.
func (r *Resource) loadedSnapshot(ctx context.Context, min, limit int64) (Snapshot, error) {
	for {
		if err := r.waitLoaded(ctx, limit); err != nil {
			return Snapshot{}, err
		}
		if snap, ok, err := r.snapshotOf(ctx, min); ok || err != nil {
			return snap, err
		}
	}
}

// snapshotOf waits for revision min and returns a snapshot at min or a later revision. It returns false if the objects
// are not in memory.
func (r *Resource) snapshotOf(ctx context.Context, min int64) (Snapshot, bool, error) {
	r.usage.mark()
	for {
		if err := r.err(); err != nil {
			return Snapshot{}, false, err
		}
		// The order matters: a state that is read after applied contains all changes up to applied.
		applied := r.cache.feed.applied.Load()
		st := r.published.state.Load()
		switch {
		case st == nil || !st.loaded:
			return Snapshot{}, false, nil
		case min > max(applied, st.revision):
			if err := r.cache.await(ctx, min); err != nil {
				return Snapshot{}, false, err
			}
		default:
			// If the resource was removed in the meantime, the state may lack the latest changes.
			if err := r.err(); err != nil {
				return Snapshot{}, false, err
			}
			return Snapshot{st.objects, max(applied, st.revision), r.config.Indexes}, true, nil
		}
	}
}

// undo returns the objects before events, by reverting the events from the last to the first. The alternative, a
// tree for each event, would keep the nodes that each write has copied in memory: a few kilobytes for each event.
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

// Revision returns the revision of the snapshot.
func (s Snapshot) Revision() int64 { return s.revision }

// Len returns the number of objects.
func (s Snapshot) Len() int { return s.objects.All().Len() }

// Get returns the object with this key, which does not include the prefix of the resource.
func (s Snapshot) Get(key string) (*Object, bool) { return s.objects.All().Get(key) }

// Ascend calls yield in the order of keys with the objects whose keys begin with prefix and are not below from, until
// yield returns false. The prefix of a namespace is "namespace/".
func (s Snapshot) Ascend(from, prefix string, yield func(*Object) bool) {
	s.objects.All().Ascend(from, prefix, yield)
}

// CountPrefix returns how many objects Ascend would yield, at the cost of two searches. Note that prefix is the first
// argument here.
func (s Snapshot) CountPrefix(prefix, from string) int { return s.objects.All().Count(from, prefix) }

// Index is like Ascend, but yields only the objects whose indexed field name has the given value. It yields
// nothing and returns false if there is no such index.
func (s Snapshot) Index(name, value, from, prefix string, yield func(*Object) bool) bool {
	i := slices.Index(s.indexes, name)
	if i < 0 {
		return false
	}
	s.objects.WithField(i, value).Ascend(from, prefix, yield)
	return true
}
