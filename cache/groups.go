package cache

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/keelson-dev/keelson/cache/index"
)

// Group is some neighbours of a Snapshot, in key order. What was made of all of them
// together, such as their text compressed, can be kept with those that stand in one
// leaf of the tree: a change of any of them makes another leaf.
type Group struct {
	Objects []*Object // must not be changed
	note    *index.Note
}

// Groups yields the objects of Ascend in groups of up to some dozens, until yield
// returns false.
func (s Snapshot) Groups(from, prefix string, yield func(Group) bool) {
	s.objects.All().Leaves(from, prefix, func(objects []*Object, note *index.Note) bool {
		return yield(Group{objects, note})
	})
}

// GroupForm is Form for what is made of a group. Nothing is kept of a group that is
// only a part of a leaf.
func (r *Resource) GroupForm(g Group, id FormID, make func() ([]byte, error)) ([]byte, error) {
	if g.note == nil {
		return make()
	}
	if kept, ok := g.note.Load().(*keptGroup); ok {
		if data, ok := kept.form(id); ok {
			return data, nil
		}
	}
	data, err := make()
	if err == nil {
		r.cache.groups.add(g.note, id, data)
	}
	return data, err
}

// AskedAgain says whether groups were asked for as this form before, and not long
// ago, and notes that they are now.
func (r *Resource) AskedAgain(id FormID) bool {
	a := &r.asked
	a.mu.Lock()
	defer a.mu.Unlock()
	again := slices.Contains(a.now, id)
	if !again {
		again = slices.Contains(a.before, id)
		a.now = append(a.now, id)
	}
	return again
}

// asked notes the forms that groups were asked for.
type asked struct {
	mu          sync.Mutex // guards now and before
	now, before []FormID
}

// forget leaves what was asked for since the last call.
func (a *asked) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now, a.before = nil, a.now
}

// unusedAfter is for how long forms of objects and groups are kept that nobody asks
// for, within a factor of two.
const unusedAfter = 5 * time.Minute

// groups bounds what is kept with groups and forgets what is not used. A group goes
// with the last tree that has its leaf, so that a change costs no search here: the
// clock has but weak pointers, and what a group was charged is given back once the
// collector has found it.
type groups struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex // guards clock and what changes in groups
	clock []weak.Pointer[keptGroup]
}

type keptGroup struct {
	forms atomic.Pointer[[]form]
	hit   atomic.Bool // used since the clock last came by
	// queued says that the clock knows it. Guarded by groups.mu.
	queued bool
	charge *atomic.Int64 // of its forms in groups.used
}

func (g *keptGroup) form(id FormID) ([]byte, bool) {
	list := g.forms.Load()
	if list == nil {
		return nil, false
	}
	for i := range *list {
		if (*list)[i].id == id {
			if !g.hit.Load() {
				g.hit.Store(true)
			}
			return (*list)[i].data, true
		}
	}
	return nil, false
}

// add keeps a form of the group at note, unless it is there already.
func (b *groups) add(note *index.Note, id FormID, data []byte) {
	cost := int64(len(data)) + formOverhead
	if cost > b.limit/4 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g, _ := note.Load().(*keptGroup)
	if g == nil {
		g = note.Keep(b.newGroup()).(*keptGroup)
	}
	if _, ok := g.form(id); ok {
		return
	}
	var list []form
	if old := g.forms.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, form{id, data})
	g.forms.Store(&list)
	g.hit.Store(true)
	g.charge.Add(cost)
	if !g.queued {
		g.queued = true
		b.clock = append(b.clock, weak.Make(g))
	}
	if b.used.Add(cost) > b.limit {
		b.pass(b.limit - b.limit/8)
	}
}

func (b *groups) newGroup() *keptGroup {
	g := &keptGroup{charge: new(atomic.Int64)}
	runtime.AddCleanup(g, func(charge *atomic.Int64) { b.used.Add(-charge.Swap(0)) }, g.charge)
	return g
}

// expire forgets the groups that were not used since it, or pass, last came by.
func (b *groups) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass(-1)
}

// pass goes over the clock, the oldest first, and forgets groups that were not used
// since it last came by until no more than target is used. It goes round once, so
// that others stay until the next time. The caller holds mu.
func (b *groups) pass(target int64) {
	for n := len(b.clock); n > 0 && b.used.Load() > target; n-- {
		p := b.clock[0]
		b.clock = b.clock[1:]
		g := p.Value()
		switch {
		case g == nil:
		case g.hit.Swap(false):
			b.clock = append(b.clock, p)
		default:
			g.forms.Store(nil)
			g.queued = false
			b.used.Add(-g.charge.Swap(0))
		}
	}
}
