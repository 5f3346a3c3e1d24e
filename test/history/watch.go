package history

import (
	"fmt"
	"strings"
)

// EventType is the type of a watch event.
type EventType string

// Types of events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is an event of a watch. A bookmark has only a revision.
type Event struct {
	Type  EventType
	Key   string
	State State // for a deletion: the last state, with the revision of the deletion
	// Prev is the previous state, if the API sends it to watchers; otherwise nil.
	Prev *State
}

func (e Event) String() string { return fmt.Sprintf("%s %s %+v", e.Type, e.Key, e.State) }

func (e Event) plain() Event { e.Prev = nil; return e }

// Selector selects the objects of a watch; empty fields select all.
type Selector struct {
	Namespace string
	Name      string
	Label     string
}

// Matches reports whether an object is selected. An object that does not exist is not selected.
func (s Selector) Matches(key string, state State) bool {
	namespace, name, _ := strings.Cut(key, "/")
	return state.Exists() &&
		(s.Namespace == "" || s.Namespace == namespace) &&
		(s.Name == "" || s.Name == name) &&
		(s.Label == "" || s.Label == state.Label)
}

func (s Selector) String() string {
	return fmt.Sprintf("%s/%s[%s]", s.Namespace, s.Name, s.Label)
}

// event returns the event that a watch with a selector gets for the change, and whether it gets one.
func (c Change) event(s Selector) (Event, bool) {
	is, was := !c.Deleted && s.Matches(c.Key, c.State), s.Matches(c.Key, c.Prev)
	e := Event{Type: Modified, Key: c.Key, State: c.State}
	switch {
	case is && !was:
		e.Type = Added
	case was && !is:
		e.Type = Deleted
		e.State = c.Prev
		e.State.Revision = c.State.Revision
	}
	return e, is || was
}

// Watch is one watch, from its start to its end.
type Watch struct {
	Name     string // for messages
	Selector Selector
	// From is the revision after which the watch begins.
	From int64
	// Initial is the state at From, if the server sent it; otherwise nil.
	Initial map[string]State
	Events  []Event
	// Through is a revision up to which the watch must have received everything, even if its own events do not show
	// that; 0 if there is none.
	Through int64
}

// End returns the highest revision that the watch has evidence of. If the last event is no bookmark, further events of
// its revision may be missing: then the watch is only known to be complete below End, unless each revision has a
// single change.
func (w Watch) End() int64 {
	end := max(w.From, w.Through)
	for _, e := range w.Events {
		end = max(end, e.State.Revision)
	}
	return end
}

// CheckWatch checks a watch alone, and against the log up to the log's end.
func CheckWatch(w Watch, l *Log) error {
	var f findings
	where := fmt.Sprintf("%s of %v from %d", w.Name, w.Selector, w.From)
	checkAlone(w, where, &f)
	checkAgainst(w, l, where, &f)
	return f.err()
}

// position identifies an event in the history.
type position struct {
	revision int64
	key      string
}

func (e Event) position() position { return position{e.State.Revision, e.Key} }

func checkAlone(w Watch, where string, f *findings) {
	seen := map[position]bool{}
	last, bookmarked := int64(0), w.From
	var before Event
	for i, e := range w.Events {
		r := e.State.Revision
		if e.Type == Bookmark {
			if r < bookmarked || r < last {
				f.add(ErrBookmarkable, where, "bookmark %d after %v and bookmark %d", r, before, bookmarked)
			}
			if i+1 < len(w.Events) {
				if next := w.Events[i+1]; next.Type != Bookmark && before.Type != "" &&
					next.State.Revision == before.State.Revision && r >= last {
					f.add(ErrAtomic, where, "bookmark %d between %v and %v", r, before, next)
				}
			}
			bookmarked = max(bookmarked, r)
			continue
		}
		switch {
		case r <= w.From:
			f.add(ErrResumable, where, "%v", e)
		case seen[e.position()]:
			f.add(ErrUnique, where, "%v", e)
		case r < last:
			f.add(ErrOrdered, where, "%v after %v", e, before)
		case r <= bookmarked:
			f.add(ErrBookmarkable, where, "%v after bookmark %d", e, bookmarked)
		}
		seen[e.position()] = true
		last, before = max(last, r), e
	}
}

func checkAgainst(w Watch, l *Log, where string, f *findings) {
	if w.Initial != nil && w.From >= l.From && w.From <= l.to {
		checkInitial(w, l, where, f)
	}
	got := map[position]Event{}
	for _, e := range w.Events {
		if e.Type != Bookmark {
			got[e.position()] = e
		}
	}
	end := w.End()
	known := map[position]bool{}
	for _, c := range l.above(w.From) {
		r := c.State.Revision
		if r > end {
			break
		}
		p := position{r, c.Key}
		known[p] = true
		want, concerns := c.event(w.Selector)
		e, sent := got[p]
		switch {
		case !concerns && sent:
			f.add(ErrFiltered, where, "%v does not concern it; the change is %+v", e, c)
		case !concerns:
		case !sent:
			f.add(ErrReliable, where, "%v; the last is of revision %d", want, end)
		case e.Type != want.Type:
			f.add(ErrFiltered, where, "%v, want %v", e, want)
		case e.plain() != want && e.Type == Deleted:
			f.add(ErrPrevious, where, "%v, want %v", e, want)
		case e.plain() != want:
			f.add(ErrInvented, where, "%v, want %v", e, want)
		case e.Prev != nil && *e.Prev != c.Prev:
			f.add(ErrPrevious, where, "%v has %+v before it, want %+v", e, *e.Prev, c.Prev)
		}
	}
	for p, e := range got {
		if !known[p] && p.revision > max(w.From, l.From) && p.revision <= l.to {
			f.add(ErrInvented, where, "%v", e)
		}
	}
}

func checkInitial(w Watch, l *Log, where string, f *findings) {
	n := 0
	for key, s := range l.At(w.From) {
		if !w.Selector.Matches(key, s) {
			continue
		}
		n++
		if w.Initial[key] != s {
			f.add(ErrSnapshot, where, "it begins with %+v for %s, the log has %+v", w.Initial[key], key, s)
		}
	}
	if len(w.Initial) > n {
		f.add(ErrSnapshot, where, "it begins with %d objects, the log with %d", len(w.Initial), n)
	}
}

// CheckResume compares two watches of the same selection: where both have been,
// both were sent the same.
func CheckResume(a, b Watch) error {
	var f findings
	where := fmt.Sprintf("%s of %v from %d and %s from %d", a.Name, a.Selector, a.From, b.Name, b.From)
	from, to := max(a.From, b.From), min(a.End(), b.End())
	as, bs := a.between(from, to), b.between(from, to)
	for i := range max(len(as), len(bs)) {
		switch {
		case i >= len(as):
			f.add(ErrResumable, where, "the first was not sent %v", bs[i])
		case i >= len(bs):
			f.add(ErrResumable, where, "the second was not sent %v", as[i])
		case as[i] != bs[i]:
			f.add(ErrResumable, where, "%v and %v", as[i], bs[i])
		default:
			continue
		}
		break // all following events are shifted
	}
	return f.err()
}

// between returns the events above revision from, up to and including revision to.
func (w Watch) between(from, to int64) []Event {
	var out []Event
	for _, e := range w.Events {
		if r := e.State.Revision; e.Type != Bookmark && r > from && r <= to {
			out = append(out, e.plain())
		}
	}
	return out
}
