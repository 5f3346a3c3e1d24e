package activity

import (
	"slices"
	"testing"
)

func TestBusy(t *testing.T) {
	tracker := New()
	a, b := tracker.Part("a"), tracker.Part("b")
	check := func(want ...string) {
		t.Helper()
		if got := tracker.Busy(); !slices.Equal(got, want) {
			t.Errorf("busy: %q, want %q", got, want)
		}
	}
	grows := func(grow bool, f func()) {
		t.Helper()
		before := tracker.Changes()
		f()
		if after := tracker.Changes(); (after > before) != grow {
			t.Errorf("the number of changes was %d and is %d", before, after)
		}
	}
	check()
	grows(true, a.Starting)
	check("a is starting")
	grows(true, func() { b.Add(2) })
	grows(false, a.Started)
	grows(false, func() { b.Add(-1) })
	check("b has 1 tasks")
	grows(false, b.Stopped)
	b.Add(-1) // the end of a task that Stopped has forgotten already
	check()
	grows(true, func() { b.Set(1) })
	grows(false, func() { b.Set(0) })
	more := true
	grows(true, func() { a.Pending(func() bool { return more }) })
	check("a has tasks")
	more = false
	check()
	var none *Tracker
	none.Part("c").Add(1) // records nothing
}
