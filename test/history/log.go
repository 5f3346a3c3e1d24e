package history

import (
	"fmt"
	"slices"
	"sort"
)

// Change is one change of one key.
type Change struct {
	Key     string
	State   State // after the change; of a deletion only Revision
	Deleted bool
	Prev    State // before it
}

// Log is every change above revision From, in order, read from the server. Within
// a revision there may be several.
type Log struct {
	From    int64
	base    map[string]State
	changes []Change
	last    map[string]State
	to      int64
}

// NewLog begins a log with the state at revision from.
func NewLog(from int64, base map[string]State) *Log {
	return &Log{From: from, base: clone(base), last: orEmpty(clone(base)), to: from}
}

func orEmpty(m map[string]State) map[string]State {
	if m == nil {
		return map[string]State{}
	}
	return m
}

// To is the revision up to which the log is complete.
func (l *Log) To() int64 { return l.to }

// Complete says that the log has all changes up to a revision.
func (l *Log) Complete(to int64) { l.to = max(l.to, to) }

// Append adds a change; Prev is filled in. Changes come in the order of revisions.
func (l *Log) Append(c Change) error {
	if n := len(l.changes); c.State.Revision <= l.From || n > 0 && c.State.Revision < l.changes[n-1].State.Revision {
		return &Violation{ErrOrdered, "log", fmt.Sprintf("%+v comes after revision %d", c, l.to)}
	}
	c.Prev = l.last[c.Key]
	if c.Deleted {
		if !c.Prev.Exists() {
			return &Violation{ErrInvented, "log", fmt.Sprintf("%s is deleted at %d and was not there", c.Key, c.State.Revision)}
		}
		delete(l.last, c.Key)
	} else {
		l.last[c.Key] = c.State
	}
	l.changes = append(l.changes, c)
	l.Complete(c.State.Revision)
	return nil
}

// AppendWatch adds the events of a watch of everything that begins where the log
// ends.
func (l *Log) AppendWatch(w Watch) error {
	if w.From != l.to {
		return fmt.Errorf("history: a watch from %d does not continue a log to %d", w.From, l.to)
	}
	for _, e := range w.Events {
		if e.Type == Bookmark {
			l.Complete(e.State.Revision)
			continue
		}
		c := Change{Key: e.Key, State: e.State, Deleted: e.Type == Deleted}
		if c.Deleted {
			c.State = State{Revision: e.State.Revision}
		}
		before := l.last[c.Key]
		if err := l.Append(c); err != nil {
			return err
		}
		if want, is := l.changes[len(l.changes)-1].event(Selector{}); !is || want != e.plain() {
			return &Violation{ErrPrevious, "log", fmt.Sprintf("%v follows %+v", e, before)}
		}
	}
	return nil
}

// Changes are all changes of the log.
func (l *Log) Changes() []Change { return l.changes }

// above are the changes above a revision.
func (l *Log) above(revision int64) []Change {
	return l.changes[sort.Search(len(l.changes), func(i int) bool { return l.changes[i].State.Revision > revision }):]
}

// LastOf returns the revision of the last change above from that concerns a
// selection; from if there is none.
func (l *Log) LastOf(s Selector, from int64) int64 {
	for _, c := range slices.Backward(l.above(from)) {
		if _, ok := c.event(s); ok {
			return c.State.Revision
		}
	}
	return from
}

// Since returns the part of the log above a revision as a log of its own.
func (l *Log) Since(revision int64) *Log {
	part := &Log{From: revision, base: clone(l.last), changes: l.above(revision), last: l.last, to: l.to}
	for _, c := range slices.Backward(part.changes) {
		if c.Prev.Exists() {
			part.base[c.Key] = c.Prev
		} else {
			delete(part.base, c.Key)
		}
	}
	return part
}

// Map returns the log with f applied to every state that exists.
func (l *Log) Map(f func(State) State) *Log {
	states := func(m map[string]State) map[string]State {
		out := map[string]State{}
		for key, s := range m {
			out[key] = f(s)
		}
		return out
	}
	out := &Log{From: l.From, base: states(l.base), last: states(l.last), to: l.to}
	for _, c := range l.changes {
		if !c.Deleted {
			c.State = f(c.State)
		}
		if c.Prev.Exists() {
			c.Prev = f(c.Prev)
		}
		out.changes = append(out.changes, c)
	}
	return out
}

// Last is the state at the end of the log.
func (l *Log) Last() map[string]State { return l.last }

// at calls f with the state at each of the given revisions, which ascend. The
// state is only lent.
func (l *Log) at(revisions []int64, f func(i int, state map[string]State)) {
	state := orEmpty(clone(l.base))
	next := 0
	for i, r := range revisions {
		for ; next < len(l.changes) && l.changes[next].State.Revision <= r; next++ {
			if c := l.changes[next]; c.Deleted {
				delete(state, c.Key)
			} else {
				state[c.Key] = c.State
			}
		}
		f(i, state)
	}
}

// At returns the state at a revision.
func (l *Log) At(revision int64) map[string]State {
	var out map[string]State
	l.at([]int64{revision}, func(_ int, state map[string]State) { out = clone(state) })
	return out
}

// CheckLog compares what was answered with the log: every acknowledged write is
// there at its revision, every change was asked for, and every list is the state at
// its revision. Ops beyond the log's span are left out, but for acknowledged writes
// above it: those are lost.
func CheckLog(ops []Op, l *Log) error {
	var f findings
	asked := map[string]Op{}      // by value
	deletions := map[string]int{} // by key, that may have happened
	byRevision := map[int64][]Change{}
	for _, c := range l.changes {
		byRevision[c.State.Revision] = append(byRevision[c.State.Revision], c)
	}
	told := map[int64]Op{}
	for _, o := range ops {
		if o.Outcome == Done || o.Outcome == Unknown {
			switch o.Kind {
			case Delete:
				deletions[o.Key]++
			case Create, Update, Replace:
				asked[o.Value] = o
			}
		}
		if o.Outcome != Done || !o.Kind.writes() || o.Kind == Delete || o.Revision <= l.From {
			continue
		}
		if before, ok := told[o.Revision]; ok {
			f.add(ErrRevision, "log", "%v and %v", before, o)
		}
		told[o.Revision] = o
		want := State{o.Revision, o.Value, o.Label}
		found := false
		for _, c := range byRevision[o.Revision] {
			found = found || c.Key == o.Key && !c.Deleted && c.State == want
		}
		switch {
		case found:
		case len(byRevision[o.Revision]) > 0:
			f.add(ErrRevision, "log", "%v; the log has %+v there", o, byRevision[o.Revision])
		default:
			f.add(ErrDurable, "log", "%v; the log from %d to %d does not have it", o, l.From, l.to)
		}
	}
	for _, c := range l.changes {
		if c.Deleted {
			if deletions[c.Key]--; deletions[c.Key] < 0 {
				f.add(ErrInvented, "log", "more deletions of %s than were asked for, one at %d", c.Key, c.State.Revision)
			}
			continue
		}
		if o, ok := asked[c.State.Value]; !ok || o.Key != c.Key || o.Label != c.State.Label {
			f.add(ErrInvented, "log", "%+v; asked for by %s", c, askers(ops, c.State.Value))
		}
	}
	checkLists(ops, l, &f)
	return f.err()
}

// askers shows the requests to write a value, with what they were answered.
func askers(ops []Op, value string) string {
	shown := "nobody"
	for _, o := range ops {
		if o.Value == value && o.Kind.writes() {
			shown = fmt.Sprintf("%v, status %d [%v, %v]", o, o.Status, o.Call, o.Return)
		}
	}
	return shown
}

func checkLists(ops []Op, l *Log, f *findings) {
	var lists []Op
	for _, o := range ops {
		if o.Kind != List || o.Outcome != Done {
			continue
		}
		if o.If != 0 && o.Revision != o.If {
			f.add(ErrSnapshot, "list", "%v", o)
		}
		if o.Revision >= l.From && o.Revision <= l.to {
			lists = append(lists, o)
		}
	}
	sort.SliceStable(lists, func(i, j int) bool { return lists[i].Revision < lists[j].Revision })
	revisions := make([]int64, len(lists))
	for i, o := range lists {
		revisions[i] = o.Revision
	}
	l.at(revisions, func(i int, state map[string]State) {
		o := lists[i]
		in := Selector{Namespace: o.Key}
		n := 0
		for key, s := range state {
			if !in.Matches(key, s) {
				continue
			}
			n++
			if o.Items[key] != s {
				f.add(ErrSnapshot, "list", "%v has %+v for %s, the log %+v", o, o.Items[key], key, s)
			}
		}
		if len(o.Items) > n {
			f.add(ErrSnapshot, "list", "%v has %d items, the log %d", o, len(o.Items), n)
		}
	})
}

// CheckOrder checks revisions against real time, over all keys: a write that was
// requested after another answer has a higher revision, and a consistent list one
// at least as high; one that asks for an exact revision is left out.
func CheckOrder(ops []Op) error {
	var f findings
	var told []Op
	for _, o := range ops {
		if o.Outcome == Done && o.Revision != 0 && (o.Kind.writes() || o.Kind == List && o.If == 0) {
			told = append(told, o)
		}
	}
	byCall := append([]Op(nil), told...)
	sort.Slice(byCall, func(i, j int) bool { return byCall[i].Call < byCall[j].Call })
	sort.Slice(told, func(i, j int) bool { return told[i].Return < told[j].Return })
	var highest Op // of those that have returned
	next := 0
	for _, o := range byCall {
		for ; next < len(told) && told[next].Return < o.Call; next++ {
			if told[next].Revision > highest.Revision {
				highest = told[next]
			}
		}
		if o.Revision < highest.Revision || o.Revision == highest.Revision && o.Kind.writes() {
			f.add(ErrRevision, "order", "%v; before it %v", o, highest)
		}
	}
	return f.err()
}
