package server

import (
	"testing"
	"time"
)

// TestIdleness has a server that is busy, then idle, and idle again after a short request between two checks.
func TestIdleness(t *testing.T) {
	begin := time.Now()
	var i idleness
	for n, look := range []struct {
		second   time.Duration
		idle     bool
		requests int64
		want     time.Duration
	}{
		{0, false, 1, -1},
		{1, true, 1, 0},
		{3, true, 1, 2 * time.Second},
		{4, true, 2, 0},
		{9, true, 2, 5 * time.Second},
		{10, false, 2, -1},
		{11, true, 2, 0},
		{12, true, 2, time.Second},
	} {
		got := i.lasts(look.idle, []int64{7, look.requests}, begin.Add(look.second*time.Second))
		if got != look.want {
			t.Errorf("look %d: idle for %v, want %v", n, got, look.want)
		}
	}
}
