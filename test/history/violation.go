package history

import (
	"errors"
	"fmt"
)

// These errors are the promises. A check that fails returns a *Violation that wraps one of them.
var (
	// ErrLinearizable: each read and write takes effect at one moment between its request and its response.
	ErrLinearizable = errors.New("not linearizable")
	// ErrDurable: an acknowledged write is never lost.
	ErrDurable = errors.New("an acknowledged write is lost")
	// ErrRevision: a revision stands for one change, and later requests get higher revisions.
	ErrRevision = errors.New("a revision is used again or goes back")
	// ErrInvented: no change happens that no client has requested.
	ErrInvented = errors.New("a change that nobody asked for")
	// ErrSnapshot: a list is the state at its revision.
	ErrSnapshot = errors.New("a list is not the state at its revision")

	// ErrOrdered: events come in the order of their revisions.
	ErrOrdered = errors.New("watch: events out of order")
	// ErrUnique: no event is sent twice.
	ErrUnique = errors.New("watch: an event comes twice")
	// ErrReliable: no event between the first and the last event is missing.
	ErrReliable = errors.New("watch: an event is missing")
	// ErrAtomic: a bookmark is never sent between the events of one revision.
	ErrAtomic = errors.New("watch: a revision is split")
	// ErrResumable: a watch from a revision that a client has seen continues directly after it.
	ErrResumable = errors.New("watch: not resumed where it was left")
	// ErrBookmarkable: after a bookmark, no event at or below its revision is sent.
	ErrBookmarkable = errors.New("watch: a bookmark does not hold")
	// ErrPrevious: a deletion carries the last state of the object, at the
	// deletion's revision.
	ErrPrevious = errors.New("watch: not the object's last state")
	// ErrFiltered: a watch with a selector gets the filtered events of the whole history: an object that enters the
	// selection is ADDED, an object that leaves it is DELETED.
	ErrFiltered = errors.New("watch: not the filter of the history")
)

// Violation describes which promise was broken, where and how.
type Violation struct {
	Promise error // one of the errors above
	Where   string
	Detail  string
}

func (v *Violation) Error() string { return fmt.Sprintf("%v: %s: %s", v.Promise, v.Where, v.Detail) }

func (v *Violation) Unwrap() error { return v.Promise }

// findings collects violations. It keeps at most mostFindings, so that the output can be read.
type findings struct {
	list []error
	more int
}

const mostFindings = 20

func (f *findings) add(promise error, where, format string, args ...any) {
	if len(f.list) >= mostFindings {
		f.more++
		return
	}
	f.list = append(f.list, &Violation{promise, where, fmt.Sprintf(format, args...)})
}

func (f *findings) err() error {
	if f.more > 0 {
		f.list = append(f.list, fmt.Errorf("and %d more", f.more))
	}
	return errors.Join(f.list...)
}
