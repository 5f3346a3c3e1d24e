package cache

import (
	"context"
	"slices"
	"sync"

	"github.com/keelson-dev/keelson/cache/index"
)

// Snapshot is a resource at one revision. It does not change, costs nothing to
// keep for the time of a request and may be used by several goroutines.
type Snapshot struct {
	objects  index.Set[*Object]
	revision int64
	indexes  []string
}

// Snapshot returns the resource at min or a later revision; 0 is whatever is
// there. The first use loads the resource. It waits for min until ctx ends: past
// its deadline the error is a *storage.FutureRevisionError if the store has not
// reached min, and else the context's.
func (r *Resource) Snapshot(ctx context.Context, min int64) (Snapshot, error) {
	if !r.used.Load() {
		r.used.Store(true)
	}
	for {
		if err := r.err(); err != nil {
			return Snapshot{}, err
		}
		// In this order: a state read after applied has all changes up to it.
		applied := r.cache.applied.Load()
		st := r.state.Load()
		switch {
		case st == nil:
			if err := r.load(ctx); err != nil {
				return Snapshot{}, err
			}
		case min > max(applied, st.revision):
			if err := r.cache.await(ctx, min); err != nil {
				return Snapshot{}, err
			}
		default:
			// One that was removed meanwhile may lack the latest changes.
			if err := r.err(); err != nil {
				return Snapshot{}, err
			}
			return r.snapshot(st.objects, max(applied, st.revision)), nil
		}
	}
}

func (r *Resource) snapshot(objects index.Set[*Object], revision int64) Snapshot {
	return Snapshot{objects, revision, r.config.Indexes}
}

// SnapshotAt returns the resource exactly as it was at revision: from the log
// where it reaches back so far, else from the store's history. It fails with
// *storage.CompactedError when that is gone, and for a revision that has not
// happened as Snapshot does.
func (r *Resource) SnapshotAt(ctx context.Context, revision int64) (Snapshot, error) {
	for {
		now, err := r.Snapshot(ctx, revision)
		if err != nil {
			return Snapshot{}, err
		}
		if revision <= 0 {
			return now, nil
		}
		if objects, ok := r.past.get(revision); ok {
			return r.snapshot(objects, revision), nil
		}
		st, since, covered := r.since(revision)
		if st == nil {
			continue // dropped meanwhile
		}
		objects := st.objects
		switch {
		case covered && len(since) == 0:
			return r.snapshot(objects, revision), nil
		case covered:
			objects = undo(objects, since)
		default:
			objects, _, err = r.fetch(ctx, revision)
			if err != nil {
				return Snapshot{}, err
			}
		}
		r.past.put(revision, objects)
		return r.snapshot(objects, revision), nil
	}
}

// since returns the state and the events above revision that led to it. The last
// result is false if the log does not know them.
func (r *Resource) since(revision int64) (*state, []*Event, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	st := r.state.Load()
	if st == nil || !r.log.Covers(revision) {
		return st, nil, false
	}
	first := r.log.After(revision)
	events := make([]*Event, 0, r.log.Next()-first)
	for p := first; p < r.log.Next(); p++ {
		events = append(events, r.log.Get(p))
	}
	return st, events, true
}

// undo takes events back, the last one first. Keeping a tree per event instead
// would keep the nodes that each write copied, some kilobytes an event.
func undo(objects index.Set[*Object], events []*Event) index.Set[*Object] {
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

// past holds the last old states that were asked for: the next page of a list is
// of the same revision.
type past struct {
	mu   sync.Mutex // guards list
	list []pastState
}

type pastState struct {
	revision int64
	objects  index.Set[*Object]
	used     bool // since tidy last came by
}

const maxPast = 4

func (p *past) get(revision int64) (index.Set[*Object], bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.list {
		if s := p.list[i]; s.revision == revision {
			s.used = true
			copy(p.list[i:], p.list[i+1:])
			p.list[len(p.list)-1] = s
			return s.objects, true
		}
	}
	return index.Set[*Object]{}, false
}

func (p *past) put(revision int64, objects index.Set[*Object]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) >= maxPast {
		p.list = slices.Delete(p.list, 0, 1)
	}
	p.list = append(p.list, pastState{revision, objects, true})
}

func (p *past) tidy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(s pastState) bool { return !s.used })
	for i := range p.list {
		p.list[i].used = false
	}
}

func (p *past) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = nil
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
	s.objects.By(i, value).Ascend(from, prefix, yield)
	return true
}

// CountIndex returns how many objects Index would yield.
func (s Snapshot) CountIndex(name, value, from, prefix string) (count int, ok bool) {
	i := slices.Index(s.indexes, name)
	if i < 0 {
		return 0, false
	}
	return s.objects.By(i, value).Count(from, prefix), true
}
