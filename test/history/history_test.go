package history

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// run is a whole history: the responses and events of a server without faults.
type run struct {
	ops     []Op
	log     *Log
	watches []Watch
}

// perfect makes the history of clients whose requests take effect one after the other and overlap in time.
func perfect(seed uint64, steps int) run {
	rng := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"a/1", "a/2", "b/1"}
	labels := []string{"red", "blue"}
	state := map[string]State{}
	r := run{log: NewLog(10, nil)}
	revision := int64(10)
	apply := func(key string, s State, deleted bool) {
		if err := r.log.Append(Change{Key: key, State: s, Deleted: deleted}); err != nil {
			panic(err)
		}
		if deleted {
			delete(state, key)
		} else {
			state[key] = s
		}
	}
	for i := range steps {
		moment := time.Duration(i) * time.Millisecond // at which the request takes effect
		o := Op{
			Client: i % 3, Kind: Kind(rng.IntN(6)), Key: keys[rng.IntN(3)], Value: fmt.Sprintf("v%d", i),
			Label:  labels[rng.IntN(2)],
			Call:   moment - time.Duration(rng.IntN(1900))*time.Microsecond,
			Return: moment + time.Duration(rng.IntN(1000))*time.Microsecond,
		}
		before := state[o.Key]
		if (o.Kind == Update || o.Kind == Delete) && rng.IntN(3) > 0 {
			if o.If = before.Revision; rng.IntN(4) == 0 {
				o.If = max(before.Revision-1, 1)
			}
		}
		if o.Kind == Update && o.If == 0 {
			o.Kind = Replace
		}
		switch {
		case o.Kind == Get:
			if o.Value, o.Label = "", ""; !before.Exists() {
				o.Outcome = Missing
			}
			o.Read = before
		case o.Kind == List:
			o.Value, o.Label, o.Revision, o.Items = "", "", revision, map[string]State{}
			if o.Key = ""; rng.IntN(2) == 0 {
				o.Key = "a"
			}
			for key, s := range state {
				if (Selector{Namespace: o.Key}).Matches(key, s) {
					o.Items[key] = s
				}
			}
		case o.Kind == Create && before.Exists():
			o.Outcome = Conflict
		case o.Kind != Create && !before.Exists():
			o.Outcome = Missing
		case o.If != 0 && o.If != before.Revision:
			o.Outcome = Conflict
		default:
			lost := rng.IntN(6) // 0 or 1: the client does not get the response; 0: the request has no effect either
			if lost == 0 {
				o.Outcome, o.Return = Unknown, Forever
				break
			}
			revision++
			if o.Kind == Delete {
				o.Value, o.Label = "", ""
				apply(o.Key, State{Revision: revision}, true)
			} else {
				o.Revision = revision
				apply(o.Key, State{revision, o.Value, o.Label}, false)
			}
			if lost == 1 {
				o.Outcome, o.Return, o.Revision = Unknown, Forever, 0
			}
		}
		r.ops = append(r.ops, o)
	}
	for i, s := range []Selector{{}, {Namespace: "a"}, {Label: "red"}, {Namespace: "b", Name: "1"}} {
		r.watches = append(
			r.watches, r.watch(fmt.Sprintf("watch %d", i), s, 10),
			r.watch(fmt.Sprintf("late %d", i), s, 10+rng.Int64N(revision-10)),
		)
	}
	return r
}

// watch returns the events of a correct watch that begins after a revision.
func (r run) watch(name string, s Selector, from int64) Watch {
	w := Watch{Name: name, Selector: s, From: from, Through: r.log.To()}
	for _, c := range r.log.Changes() {
		if c.State.Revision <= from {
			continue
		}
		if e, ok := c.event(s); ok {
			prev := c.Prev
			e.Prev = &prev
			w.Events = append(w.Events, e)
		}
		if c.State.Revision%3 == 0 {
			w.Events = append(w.Events, Event{Type: Bookmark, State: State{Revision: c.State.Revision}})
		}
	}
	return w
}

func (r run) check() error {
	errs := []error{CheckLinearizable(r.ops, nil, time.Minute), CheckOrder(r.ops), CheckLog(r.ops, r.log)}
	for _, w := range r.watches {
		errs = append(errs, CheckWatch(w, r.log))
	}
	for i := 0; i < len(r.watches); i += 2 {
		errs = append(errs, CheckResume(r.watches[i], r.watches[i+1]))
	}
	return errors.Join(errs...)
}

func TestPerfectHistoriesPass(t *testing.T) {
	for seed := range uint64(50) {
		if err := perfect(seed, 120).check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestPartOfALog(t *testing.T) {
	l := perfect(3, 200).log
	for r := l.From; r <= l.To(); r++ {
		part := l.Since(r)
		if got, want := part.At(r), l.At(r); !maps.Equal(got, want) {
			t.Fatalf("at %d: %v, want %v", r, got, want)
		}
		if got, want := part.At(l.To()), l.Last(); !maps.Equal(got, want) {
			t.Fatalf("from %d on: %v, want %v", r, got, want)
		}
	}
}

// find returns the index of the first Op, at or after from, for which is returns true.
func (r run) find(t *testing.T, from int, is func(Op) bool) int {
	t.Helper()
	i := slices.IndexFunc(r.ops[from:], is)
	if i < 0 {
		t.Fatal("the history has no such request")
	}
	return from + i
}

func (w Watch) find(t *testing.T, is func(int, Event) bool) int {
	t.Helper()
	for i, e := range w.Events {
		if is(i, e) {
			return i
		}
	}
	t.Fatal("the watch has no such event")
	return 0
}

func change(i int, e Event) bool { return i > 3 && e.Type != Bookmark }

// TestPlantedBugs shows that each promise is checked: it changes one thing in a correct history, and demands the error
// of the promise that this breaks.
func TestPlantedBugs(t *testing.T) {
	for _, bug := range []struct {
		name   string
		breaks error
		plant  func(t *testing.T, r *run)
	}{
		{"a read of an old version", ErrLinearizable, func(t *testing.T, r *run) {
			var old State
			i := r.find(t, 0, func(o Op) bool {
				if o.Kind != Get || o.Outcome != Done {
					return false
				}
				for _, c := range r.log.Changes() {
					if c.Key == o.Key && c.Prev.Exists() && !c.Deleted && c.State == o.Read {
						old = c.Prev
						return true
					}
				}
				return false
			})
			r.ops[i].Call = r.ops[i].Return - time.Microsecond // after the new version had been read
			r.ops[i].Read = old
			again := r.ops[i]
			again.Read = State{}
			for _, c := range r.log.Changes() {
				if c.Prev == old {
					again.Read = c.State
				}
			}
			again.Call, again.Return = again.Call-2*time.Microsecond, again.Call-time.Microsecond
			r.ops = append(r.ops, again)
		}},
		{"two creates of one object succeed", ErrLinearizable, func(t *testing.T, r *run) {
			i := r.find(t, 40, func(o Op) bool { return o.Kind == Create && o.Outcome == Conflict })
			r.ops[i].Outcome, r.ops[i].Revision = Done, r.log.To()+1
		}},
		{"a lost update", ErrLinearizable, func(t *testing.T, r *run) {
			i := r.find(t, 20, func(o Op) bool { return o.Kind == Update && o.Outcome == Conflict })
			r.ops[i].Outcome, r.ops[i].Revision = Done, r.log.To()+1
		}},
		{"an update of an unknown answer has effect after the end of the process", ErrLinearizable, func(t *testing.T,
			r *run) {
			r.ops = []Op{
				{Kind: Create, Key: "z/1", Value: "z1", Revision: 100, Call: 1, Return: 2},
				{Kind: Replace, Key: "z/1", Value: "z2", Outcome: Unknown, Call: 3, Return: 4},
				{Kind: Get, Key: "z/1", Read: State{100, "z1", ""}, Call: 5, Return: 6},
				{Kind: Get, Key: "z/1", Read: State{101, "z2", ""}, Call: 7, Return: 8},
			}
		}},
		{"a list misses an object", ErrLinearizable, func(t *testing.T, r *run) {
			r.ops = append(r.ops,
				Op{Kind: Create, Key: "a/7", Value: "seven", Revision: r.log.To() + 5, Call: time.Hour, Return: time.Hour + 1},
				Op{Kind: List, Key: "a", Revision: r.log.To() + 6, Items: map[string]State{}, Call: time.Hour + 2,
					Return: time.Hour + 3})
		}},
		{"a list misses an object of its revision", ErrSnapshot, func(t *testing.T, r *run) {
			i := r.find(t, 30, func(o Op) bool { return o.Kind == List && o.Key == "" && len(o.Items) == 3 })
			delete(r.ops[i].Items, "a/2")
		}},
		{"a list has an object of another time", ErrSnapshot, func(t *testing.T, r *run) {
			i := r.find(t, 30, func(o Op) bool { return o.Kind == List && len(o.Items) == 1 })
			r.ops[i].Items["a/9"] = State{11, "v", "red"}
		}},
		{"an acknowledged write is lost", ErrDurable, func(t *testing.T, r *run) {
			i := r.find(t, 0, func(o Op) bool { return o.Kind == Create && o.Revision != 0 })
			r.log.changes = slices.DeleteFunc(
				r.log.changes, func(c Change) bool { return c.State.Revision == r.ops[i].Revision },
			)
		}},
		{"an acknowledged write is beyond the end", ErrDurable, func(t *testing.T, r *run) {
			r.ops = append(
				r.ops,
				Op{Kind: Create, Key: "a/7", Value: "last", Revision: r.log.To() + 5, Call: time.Hour, Return: time.Hour + 1},
			)
		}},
		{"a revision is used twice", ErrRevision, func(t *testing.T, r *run) {
			i := r.find(t, 30, func(o Op) bool { return o.Kind == Create && o.Revision != 0 })
			again := r.ops[i]
			again.Key, again.Value = "a/8", "again"
			r.ops = append(r.ops, again)
		}},
		{"revisions go back", ErrRevision, func(t *testing.T, r *run) {
			r.ops = append(
				r.ops, Op{Kind: Create, Key: "a/7", Value: "late", Revision: 11, Call: time.Hour, Return: time.Hour + 1},
			)
		}},
		{"a list is of the past", ErrRevision, func(t *testing.T, r *run) {
			r.ops = append(r.ops, Op{Kind: List, Revision: 11, Call: time.Hour, Return: time.Hour + 1})
		}},
		{"a refused write happened", ErrInvented, func(t *testing.T, r *run) {
			i := r.find(t, 0, func(o Op) bool { return o.Kind == Create && o.Revision != 0 })
			r.ops[i].Outcome = Refused
		}},
		{"a deletion that nobody asked for", ErrInvented, func(t *testing.T, r *run) {
			r.ops = slices.DeleteFunc(r.ops, func(o Op) bool { return o.Kind == Delete })
		}},
		{"events out of order", ErrOrdered, func(t *testing.T, r *run) {
			e := r.watches[0].Events
			i := r.watches[0].find(t, func(i int, v Event) bool { return change(i, v) && e[i-1].Type != Bookmark })
			e[i], e[i-1] = e[i-1], e[i]
		}},
		{"an event comes twice", ErrUnique, func(t *testing.T, r *run) {
			w := &r.watches[2]
			i := w.find(t, change)
			w.Events = slices.Insert(w.Events, i, w.Events[i])
		}},
		{"an event is dropped", ErrReliable, func(t *testing.T, r *run) {
			w := &r.watches[0]
			i := w.find(t, change)
			w.Events = slices.Delete(w.Events, i, i+1)
		}},
		{"the last event is dropped", ErrReliable, func(t *testing.T, r *run) {
			w := &r.watches[0]
			for w.Events[len(w.Events)-1].Type == Bookmark {
				w.Events = w.Events[:len(w.Events)-1]
			}
			w.Events = w.Events[:len(w.Events)-1]
		}},
		{"a revision is split", ErrAtomic, func(t *testing.T, r *run) {
			w := &r.watches[0]
			i := w.find(t, change)
			other := w.Events[i]
			other.Key = "a/77"
			mark := Event{Type: Bookmark, State: State{Revision: other.State.Revision}}
			w.Events = slices.Insert(w.Events, i+1, mark, other)
		}},
		{"a watch begins before it is asked to", ErrResumable, func(t *testing.T, r *run) {
			w := &r.watches[1]
			w.Events = r.watches[0].Events
		}},
		{"a watch resumes too late", ErrResumable, func(t *testing.T, r *run) {
			w := &r.watches[1]
			i := w.find(t, func(_ int, e Event) bool { return e.Type != Bookmark })
			w.Events = w.Events[i+1:]
		}},
		{"an event after a bookmark of its revision", ErrBookmarkable, func(t *testing.T, r *run) {
			w := &r.watches[4]
			i := w.find(t, change)
			w.Events = slices.Insert(w.Events, i, Event{Type: Bookmark, State: State{Revision: w.Events[i].State.Revision}})
		}},
		{"a bookmark goes back", ErrBookmarkable, func(t *testing.T, r *run) {
			w := &r.watches[4]
			w.Events = append(w.Events, Event{Type: Bookmark, State: State{Revision: 11}})
		}},
		{"a deletion carries an older state", ErrPrevious, func(t *testing.T, r *run) {
			w := &r.watches[0]
			i := w.find(t, func(_ int, e Event) bool { return e.Type == Deleted })
			w.Events[i].State.Value = "old"
		}},
		{"an event carries another state before it", ErrPrevious, func(t *testing.T, r *run) {
			w := &r.watches[0]
			i := w.find(t, func(_ int, e Event) bool { return e.Type == Modified })
			w.Events[i].Prev = &State{}
		}},
		{"leaving the selection is not sent as a deletion", ErrFiltered, func(t *testing.T, r *run) {
			w := &r.watches[4]
			i := w.find(t, func(_ int, e Event) bool { return e.Type == Deleted })
			w.Events[i].Type = Modified
		}},
		{"an event of another selection", ErrFiltered, func(t *testing.T, r *run) {
			w := &r.watches[4]
			i := r.watches[0].find(t, func(_ int, e Event) bool {
				return e.Type == Added && e.State.Label == "blue"
			})
			w.Events = append(w.Events, r.watches[0].Events[i])
			slices.SortStableFunc(w.Events, func(a, b Event) int { return int(a.State.Revision - b.State.Revision) })
		}},
		{"an event with another value", ErrInvented, func(t *testing.T, r *run) {
			w := &r.watches[0]
			i := w.find(t, func(_ int, e Event) bool { return e.Type == Modified })
			w.Events[i].State.Value = "other"
		}},
		{"initial events of another time", ErrSnapshot, func(t *testing.T, r *run) {
			w := &r.watches[1]
			w.Initial = r.log.At(w.From)
			w.Initial["a/77"] = State{12, "v", ""}
		}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			r := perfect(7, 200)
			bug.plant(t, &r)
			if err := r.check(); !errors.Is(err, bug.breaks) {
				t.Errorf("found %v, want %v", err, bug.breaks)
			}
		})
	}
}

// TestSomeLostAnswersAreNeeded shows that both possibilities of an unknown response are considered: the request may
// have had an effect, or none.
func TestSomeLostAnswersAreNeeded(t *testing.T) {
	create := Op{Kind: Create, Key: "a/1", Value: "1", Revision: 5, Call: 1, Return: 2}
	lost := Op{Kind: Replace, Key: "a/1", Value: "2", Outcome: Unknown, Call: 3, Return: Forever}
	before := Op{Kind: Get, Key: "a/1", Read: State{5, "1", ""}, Call: 4, Return: 5}
	after := Op{Kind: Get, Key: "a/1", Read: State{9, "2", ""}, Call: 6, Return: 7}
	for _, c := range []struct {
		name string
		ops  []Op
		ok   bool
	}{
		{"no effect", []Op{create, lost, before}, true},
		{"effect", []Op{create, lost, after}, true},
		{"effect later", []Op{create, lost, before, after}, true},
		{"effect undone", []Op{create, lost, {Kind: Get, Key: "a/1", Read: after.Read, Call: 3, Return: 3}, before}, false},
		{"effect without request", []Op{create, after}, false},
	} {
		if err := CheckLinearizable(c.ops, nil, time.Minute); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRecorder(t *testing.T) {
	r := NewRecorder()
	r.Add(Op{Kind: Get, Outcome: Unknown})
	r.Add(Op{Kind: Create, Outcome: Unknown, Return: 5})
	if len(r.ops) != 1 || r.ops[0].Return != Forever {
		t.Errorf("recorded %v", r.ops)
	}
	r.Settle()
	if ops := r.Take(); ops[0].Return == Forever {
		t.Errorf("not settled: %v", ops)
	}
	world := r.World()
	r.Freeze(func() {})
	r.Add(Op{Kind: Get, Call: 1})
	r.Add(Op{Kind: Create, Call: 1, Return: 2, Revision: 3})
	r.Add(Op{Kind: Create, Call: time.Hour})
	if ops := r.Take(); len(ops) != 1 || ops[0].Outcome != Unknown || ops[0].Return != Forever {
		t.Errorf("recorded after the end: %v", ops)
	}
	if r.RecordIn(world, func() {}) || r.RecordIn(r.World(), func() {}) {
		t.Error("something was recorded in a world that has ended")
	}
	r.Thaw()
	if r.RecordIn(world, func() {}) || !r.RecordIn(r.World(), func() {}) {
		t.Error("something was recorded in the old world, or nothing in the new one")
	}
	r.Add(Op{Kind: Create, Call: time.Hour})
	if ops := r.Take(); len(ops) != 1 {
		t.Errorf("recorded %v", ops)
	}
}
