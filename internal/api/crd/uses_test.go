package crd

import "testing"

func TestWhenNoneWaitsForLastUse(t *testing.T) {
	var u uses
	calls := 0
	u.whenNone(func() { calls++ })
	if calls != 1 {
		t.Fatalf("%d calls without uses", calls)
	}
	u.begin()
	u.begin()
	u.whenNone(func() { calls++ })
	u.end()
	if calls != 1 {
		t.Fatalf("%d calls while there is a use", calls)
	}
	u.end()
	if calls != 2 {
		t.Fatalf("%d calls after the last use", calls)
	}
	u.begin()
	u.end()
	if calls != 2 {
		t.Errorf("a function was called again: %d calls", calls)
	}
}
