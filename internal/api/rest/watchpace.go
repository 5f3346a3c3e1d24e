package rest

import "time"

// pacer sends several events of a busy watch with one write. Encrypting and writing the bytes of one event costs more
// than ten times as much as encoding it. A watch with fewer events than busyEvents in pacePeriod sends each event at
// once. A busier one sends at most once in sendGap, so that an event waits up to sendGap for further ones.
type pacer struct {
	begin  time.Time // when the current period began
	events int       // how many events were sent in the current period
	busy   bool      // the period before had busyEvents or more
	sent   time.Time // when events were last sent
	last   int       // how many those were
}

const (
	pacePeriod = 50 * time.Millisecond
	busyEvents = 20 // in pacePeriod: 400 a second
	sendGap    = 4 * time.Millisecond
	// manyEvents is the smallest number of events in one write after which there is no pause: with so many events,
	// the watch is behind.
	manyEvents = 16
)

// note records that events were sent.
func (p *pacer) note(events int, now time.Time) {
	if now.Sub(p.begin) >= pacePeriod {
		p.busy = p.events >= busyEvents && now.Sub(p.begin) < 2*pacePeriod
		p.begin, p.events = now, 0
	}
	p.events += events
	p.sent, p.last = now, events
}

// pause returns the time to wait before reading the next events.
func (p *pacer) pause(now time.Time) time.Duration {
	if !p.busy || p.last >= manyEvents {
		return 0
	}
	return max(0, sendGap-now.Sub(p.sent))
}
