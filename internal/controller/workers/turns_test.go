package workers

import (
	"slices"
	"testing"
)

// TestGroupsTakeTurns: an item of a new group waits for one item of each other group, not for all of their items.
func TestGroupsTakeTurns(t *testing.T) {
	q := newTurns(func(item string) string { return item[:1] })
	for _, item := range []string{"a1", "a2", "a3", "b1", "a4", "b2", "c1"} {
		q.Push(item)
	}
	var got []string
	take := func(n int) {
		for range n {
			got = append(got, q.Pop())
		}
	}
	take(4)
	q.Push("c2") // the group had become empty, so its next turn is the last
	take(4)
	if want := []string{"a1", "b1", "c1", "a2", "b2", "a3", "c2", "a4"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	if q.Len() != 0 || len(q.groups) != 0 || q.next.Len() != 0 {
		t.Errorf("%d items, %d groups and %d turns are left", q.Len(), len(q.groups), q.next.Len())
	}
}
