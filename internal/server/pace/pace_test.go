package pace

import (
	"testing"
	"time"
)

// TestPercent is a transcript of collections. A line has the time of one, the live heap, the processor time since
// the previous one, and GOGC afterwards.
func TestPercent(t *testing.T) {
	p := newPacer()
	at, collector, user := time.Unix(1000, 0), 0.0, 0.0
	p.percent(at, 0, 0, 0)
	for _, step := range []struct {
		after           time.Duration
		live            uint64 // MiB
		collector, user float64
		want            int
		because         string
	}{
		{time.Minute, 48, 1, 0, 75, "idle: the least headroom, 36 MiB"},
		{100 * time.Millisecond, 48, 0.02, 0.18, 100, "collecting takes 10 %: half more would be 54 MiB; 48 are the most"},
		{150 * time.Millisecond, 48, 0.018, 0.282, 100, "6 % are still too much"},
		{200 * time.Millisecond, 48, 0.016, 0.384, 100, "4 % are right"},
		{200 * time.Millisecond, 48, 0.002, 0.398, 75, "0.5 % are less than needed: a quarter less"},
		{2 * time.Second, 48, 1, 0, 75, "few collections: a quarter less, whatever they take"},
		{time.Minute, 48, 1, 0, 75, "the least again"},
		{100 * time.Millisecond, 4000, 0.1, 0.1, leastPercent, "of a large heap an eighth is little"},
		{100 * time.Millisecond, 1, 0, 0.1, maxPercent, "a small heap"},
	} {
		at, collector, user = at.Add(step.after), collector+step.collector, user+step.user
		if got := p.percent(at, step.live<<20, collector, user); got != step.want {
			t.Errorf("%s: %d %%, want %d", step.because, got, step.want)
		}
	}
	for range 20 {
		at, collector, user = at.Add(time.Millisecond), collector+1, user+1
		p.percent(at, 48<<20, collector, user)
	}
	if p.headroom != mostHeadroom {
		t.Errorf("headroom %.0f", p.headroom)
	}
}
