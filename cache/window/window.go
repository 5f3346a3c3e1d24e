// Package window holds the log of a resource's recent events: a ring bounded in
// bytes, in which every event has a position and a revision. It knows from which
// revisions a reader can go on without missing anything.
//
// The package is a pure data structure: no lock, clock, goroutine or I/O.
package window

// Log is a run of events in the order in which they happened. Positions count up
// from 0 for the whole life of the log; an event keeps its position until it is
// trimmed.
type Log[E any] struct {
	ring        []entry[E] // a power of two long; position p lies at p & (len-1)
	first, next uint64
	start       int64 // every event with a revision above it is in the log
	last        int64 // no event with a revision above it is in the log
	gaps        []gap
	bytes       int64
}

type entry[E any] struct {
	event    E
	revision int64
	size     int64
}

// hole is a span of revisions, both ends exclusive, of which the log has the
// outcome but not every event.
type gap struct{ after, before int64 }

// Reset empties the log; what follows is complete for revisions above start.
// Positions go on counting.
func (l *Log[E]) Reset(start int64) {
	*l = Log[E]{first: l.next, next: l.next, start: start, last: start}
}

// Skip leaves a position out, so that a reader at the end of the log can tell that
// the log was begun anew. The log must be empty.
func (l *Log[E]) Skip() {
	l.first++
	l.next++
}

// Resize changes what keeping each event costs.
func (l *Log[E]) Resize(size func(event E) int64) {
	l.bytes = 0
	for p := l.first; p < l.next; p++ {
		e := l.at(p)
		e.size = size(e.event)
		l.bytes += e.size
	}
}

// Append adds an event, which must not have a lower revision than the one before,
// and returns its position. size is what keeping the event costs, in bytes.
func (l *Log[E]) Append(revision, size int64, event E) uint64 {
	if int(l.next-l.first) == len(l.ring) {
		l.grow()
	}
	at := l.next
	*l.at(at) = entry[E]{event, revision, size}
	l.next++
	l.last = revision
	l.bytes += size
	return at
}

func (l *Log[E]) grow() {
	ring := make([]entry[E], max(16, 2*len(l.ring)))
	for p := l.first; p < l.next; p++ {
		ring[p&uint64(len(ring)-1)] = *l.at(p)
	}
	l.ring = ring
}

func (l *Log[E]) at(position uint64) *entry[E] {
	return &l.ring[position&uint64(len(l.ring)-1)]
}

// Trim removes the oldest events while the log is larger than limit bytes, and tells
// dropped of each. The events of the last revision stay, whatever they weigh.
func (l *Log[E]) Trim(limit int64, dropped func(position uint64, event E)) {
	for l.bytes > limit && l.Len() > 0 && l.at(l.first).revision < l.last {
		l.drop(dropped)
	}
}

// Clear removes all events and tells dropped of each, the oldest first.
func (l *Log[E]) Clear(dropped func(position uint64, event E)) {
	for l.Len() > 0 {
		l.drop(dropped)
	}
}

// drop removes the oldest event.
func (l *Log[E]) drop(dropped func(position uint64, event E)) {
	e := l.at(l.first)
	position, event := l.first, e.event
	l.start = e.revision
	l.bytes -= e.size
	*e = entry[E]{}
	l.first++
	for len(l.gaps) > 0 && l.gaps[0].before <= l.start {
		l.gaps = l.gaps[1:]
	}
	dropped(position, event)
}

// Hole says that between the two revisions (exclusive) only the outcome is known:
// events of that span that were or will be appended lead from the state at after
// to the state at before, but a reader that is somewhere in between cannot join.
func (l *Log[E]) AddGap(after, before int64) {
	if before-after > 1 {
		l.gaps = append(l.gaps, gap{after, before})
	}
}

// Covers says whether a reader that knows everything up to revision can go on
// with the events of the log that have a higher revision.
func (l *Log[E]) Covers(revision int64) bool {
	if revision < l.start {
		return false
	}
	for _, h := range l.gaps {
		if revision > h.after && revision < h.before {
			return false
		}
	}
	return true
}

// After returns the position of the first event with a revision above revision;
// Next if there is none.
func (l *Log[E]) After(revision int64) uint64 {
	low, high := l.first, l.next
	for low < high {
		mid := low + (high-low)/2
		if l.at(mid).revision <= revision {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// Get returns the event at a position from First on and below Next.
func (l *Log[E]) Get(position uint64) E { return l.at(position).event }

// Revision returns the revision of the event at a position.
func (l *Log[E]) Revision(position uint64) int64 { return l.at(position).revision }

// First is the position of the oldest event.
func (l *Log[E]) First() uint64 { return l.first }

// Next is the position that the next event will have.
func (l *Log[E]) Next() uint64 { return l.next }

// Start is the revision above which the log has every event.
func (l *Log[E]) Start() int64 { return l.start }

// Len is the number of events.
func (l *Log[E]) Len() int { return int(l.next - l.first) }

// Bytes is the sum of the sizes of the events.
func (l *Log[E]) Bytes() int64 { return l.bytes }
