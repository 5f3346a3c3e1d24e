package history

import (
	"fmt"
	"slices"
	"sort"
)

// Change is one change of one key.
type Change struct {
	Key     string
	State   State // after the change; for a deletion only Revision is set
	Deleted bool
	Prev    State // before the change
}

// Log has every change above revision From, in the order of revisions, as read from the server. One revision may have
// several changes.
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

// To returns the revision up to which the log is complete.
func (l *Log) To() int64 { return l.to }

// Complete records that the log has all changes up to a revision.
func (l *Log) Complete(to int64) { l.to = max(l.to, to) }

// Append adds a change and sets its Prev. Changes must be added in the order of their revisions.
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

// AppendWatch adds the events of a watch without a selector that began at the end of the log.
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

// Changes returns all changes of the log.
func (l *Log) Changes() []Change { return l.changes }

// above returns the changes above a revision.
func (l *Log) above(revision int64) []Change {
	return l.changes[sort.Search(len(l.changes), func(i int) bool { return l.changes[i].State.Revision > revision }):]
}

// LastOf returns the revision of the last change above from that concerns a selection, or from if there is none.
func (l *Log) LastOf(s Selector, from int64) int64 {
	for _, c := range slices.Backward(l.above(from)) {
		if _, ok := c.event(s); ok {
			return c.State.Revision
		}
	}
	return from
}

// Since returns a new log with the changes above a revision.
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

// Map returns a new log in which f was applied to the state of every existing object.
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

// Last returns the state at the end of the log.
func (l *Log) Last() map[string]State { return l.last }

// at calls f with the state at each of the revisions, which must be in ascending order. f must not keep or change the
// state.
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

// CheckLog compares responses with the log: every acknowledged write must be there at its revision, every change must
// have been requested, and every list must be the state at its revision. Requests outside of the revisions of the log
// are ignored, except for acknowledged writes above its end: these are lost writes.
func CheckLog(ops []Op, l *Log) error {
	var f findings
	asked := map[string]Op{}      // by value
	deletions := map[string]int{} // by key, that may have happened
	byRevision := map[int64][]Change{}
	for _, c := range l.changes {
		byRevision[c.State.Revision] = append(byRevision[c.State.Revision], c)
	}
	answered := map[int64]Op{}
	for _, o := range ops {
		if o.Outcome == Done || o.Outcome == Unknown {
			switch o.Kind {
			case Delete:
				deletions[o.Key]++
			case Create, Update, Replace:
				asked[o.Value] = o
			}
		}
		if o.Outcome != Done || !o.Kind.Writes() || o.Kind == Delete || o.Revision <= l.From {
			continue
		}
		if before, ok := answered[o.Revision]; ok {
			f.add(ErrRevision, "log", "%v and %v", before, o)
		}
		answered[o.Revision] = o
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
			f.add(ErrInvented, "log", "%+v; asked for by %s", c, requestsFor(ops, c.State.Value))
		}
	}
	checkLists(ops, l, &f)
	return f.err()
}

// requestsFor returns the requests that wrote a value, with their responses, as text.
func requestsFor(ops []Op, value string) string {
	shown := "nobody"
	for _, o := range ops {
		if o.Value == value && o.Kind.Writes() {
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

// CheckOrder compares revisions with real time, over all keys: a write that was sent after another response must have
// a higher revision than that response, a consistent list at least the same revision. Lists at an exact revision are
// ignored.
func CheckOrder(ops []Op) error {
	var f findings
	var answered []Op
	for _, o := range ops {
		if o.Outcome == Done && o.Revision != 0 && (o.Kind.Writes() || o.Kind == List && o.If == 0) {
			answered = append(answered, o)
		}
	}
	byCall := append([]Op(nil), answered...)
	sort.Slice(byCall, func(i, j int) bool { return byCall[i].Call < byCall[j].Call })
	sort.Slice(answered, func(i, j int) bool { return answered[i].Return < answered[j].Return })
	var highest Op // with the highest revision of the requests that have returned
	next := 0
	for _, o := range byCall {
		for ; next < len(answered) && answered[next].Return < o.Call; next++ {
			if answered[next].Revision > highest.Revision {
				highest = answered[next]
			}
		}
		if o.Revision < highest.Revision || o.Revision == highest.Revision && o.Kind.Writes() {
			f.add(ErrRevision, "order", "%v; before it %v", o, highest)
		}
	}
	return f.err()
}
