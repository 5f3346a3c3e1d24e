package clock

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := New(start)
	soon, late, past := c.After(time.Minute), c.After(time.Hour), c.After(0)
	if at := <-past; !at.Equal(start) {
		t.Errorf("what is due at once came at %v", at)
	}
	c.Advance(2 * time.Minute)
	if at := <-soon; !at.Equal(start.Add(2*time.Minute)) || !c.Now().Equal(at) || c.Since(start) != 2*time.Minute {
		t.Errorf("it came at %v, and the clock shows %v", at, c.Now())
	}
	select {
	case at := <-late:
		t.Errorf("what is due in an hour came at %v", at)
	default:
	}
	c.Advance(time.Hour)
	<-late
	if len(c.waiting) != 0 {
		t.Errorf("%d still wait", len(c.waiting))
	}
}

func TestClockOfTheSystem(t *testing.T) {
	var c *Clock
	before := time.Now()
	if at := <-c.After(time.Millisecond); at.Before(before) || c.Now().Before(at) || c.Since(before) <= 0 {
		t.Errorf("it came at %v, asked for at %v", at, before)
	}
}
