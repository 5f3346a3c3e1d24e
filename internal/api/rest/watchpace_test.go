package rest

import (
	"testing"
	"time"
)

// TestPacer sends events at several rates and counts the writes.
func TestPacer(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration // time between two events
		burst int           // events at a time
		// the writes for 1,000 events are between these
		least, most int
	}{
		{"few events", 5 * time.Millisecond, 1, 1000, 1000},
		{"many events", 1250 * time.Microsecond, 1, 250, 400},
		{"catching up", time.Microsecond, 100, 10, 10},
	} {
		var p pacer
		start := time.Unix(1e9, 0)
		now, sent, writes := start, 0, 0
		for sent < 1000 {
			now = now.Add(p.pause(now))
			// The events that were made until now, or, if all of them were sent, the next ones.
			ready := (int(now.Sub(start)/c.every) + 1) * c.burst
			if ready <= sent {
				now = start.Add(time.Duration(sent/c.burst) * c.every)
				ready = sent + c.burst
			}
			n := min(ready-sent, 100)
			sent += n
			writes++
			p.note(n, now)
		}
		if writes < c.least || writes > c.most {
			t.Errorf("%s: %d writes for %d events, not %d to %d", c.name, writes, sent, c.least, c.most)
		}
	}
	// After a time without events, an event does not wait.
	var p pacer
	now := time.Unix(1e9, 0)
	for range 500 {
		now = now.Add(time.Millisecond)
		p.note(1, now)
	}
	if p.pause(now) == 0 {
		t.Error("a busy watch does not wait")
	}
	now = now.Add(time.Minute)
	if pause := p.pause(now); pause != 0 {
		t.Errorf("the first event after a minute waits %v", pause)
	}
	if p.note(1, now); p.pause(now) != 0 {
		t.Error("the second event after a minute waits")
	}
}
