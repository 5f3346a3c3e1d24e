package cache

import (
	"cmp"
	"slices"

	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache/index"
)

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

// after returns the state that follows st after changes up to revision, and the events of these changes. d is the
// decoder of the resource.
func (st *state) after(d *decoder, changes []storage.Event, revision int64) (*state, []*Event) {
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
			continue // the load has read this change already
		}
		if e := next.apply(d, edit, &changes[i]); e != nil {
			events = append(events, e)
		}
	}
	if st.loaded && len(events) > 0 {
		next.objects = edit.Done()
	}
	return next, events
}

// apply creates the event of a change and applies the change to st, which is not published yet. If the objects are
// loaded, it changes edit, and otherwise the number of objects. It returns nil for the deletion of an object that
// does not exist.
func (st *state) apply(d *decoder, edit *index.Edit[*Object], c *storage.Event) *Event {
	key := c.Entry.Key[len(d.config.Prefix):]
	e := &Event{Revision: c.Entry.ModRevision, decoder: d}
	switch {
	case edit != nil:
		e.Prev, _ = edit.Get(key)
	case c.Prev.ModRevision != 0:
		e.Prev = d.read(c.Prev, nil)
	}
	if c.Deleted && e.Prev == nil {
		return nil
	}
	if !c.Deleted {
		e.Object = d.read(c.Entry, e.Prev)
	}
	if edit == nil {
		e.logOnly = e.Object != nil
		switch {
		case e.Prev == nil:
			st.count++
		case c.Deleted:
			st.count--
		}
		return e
	}
	st.bytes += e.Object.memoryBytes() - e.Prev.memoryBytes()
	if c.Deleted {
		edit.Delete(key)
	} else {
		edit.Put(e.Object.Key, e.Object)
	}
	return e
}

// withReadable returns st with unread objects replaced by their readable forms. resolved maps the unread objects
// to these. The stored objects are not changed: the revision remains the same, and there is no event.
func (st *state) withReadable(resolved map[*Object]*Object) *state {
	next := new(state)
	*next = *st
	edit := st.objects.Edit()
	for o, object := range resolved {
		if now, ok := edit.Get(o.Key); ok && now == o {
			edit.Put(object.Key, object)
			next.bytes += object.memoryBytes() - o.memoryBytes()
		}
	}
	next.objects = edit.Done()
	return next
}

// difference returns the changes between the loaded objects of st and the entries in the store at revision base,
// in the order of revisions. scan yields the entries. Their keys begin with prefix.
func (st *state) difference(
	prefix string, base int64, scan func(each func(storage.Entry) bool) error,
) (changes []storage.Event, err error) {
	found := make(map[string]struct{}, st.objects.All().Len())
	err = scan(func(e storage.Entry) bool {
		old, ok := st.objects.All().Get(e.Key[len(prefix):])
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
		return nil, err
	}
	st.objects.All().Ascend("", "", func(o *Object) bool {
		if _, ok := found[o.Key]; !ok {
			changes = append(changes, storage.Event{
				Deleted: true,
				Entry:   storage.Entry{Key: prefix + o.Key, ModRevision: base},
			})
		}
		return true
	})
	slices.SortStableFunc(changes, func(a, b storage.Event) int { return cmp.Compare(a.Entry.ModRevision, b.Entry.ModRevision) })
	return changes, nil
}
