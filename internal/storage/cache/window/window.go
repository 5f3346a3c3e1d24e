// Package window contains the log of the recent events of a resource: a ring bounded in bytes, in which every event has
// a position and a revision. It knows from which revisions a reader can continue without missing an event.
//
// Example: the log was reset at revision 100, and got events with the revisions 103, 103 and 107 at the positions 0, 1
// and 2. It covers every revision from 100 on. After(103) is position 2. When Trim removes the positions 0 and 1, the
// log covers revisions from 103 on only.
//
// The package is a pure data structure: no lock, clock, goroutine or I/O.
package window

// Log is a sequence of events in the order in which they happened. Positions count up from 0 for the whole life of the
// log, and an event keeps its position until it is removed.
type Log[E any] struct {
	ring        []entry[E] // the length is a power of two; position p is at p & (len-1)
	first, next uint64     // positions of the oldest event and of the next one
	start       int64      // all events with a higher revision are in the log
	last        int64      // no event in the log has a higher revision
	gaps        []gap
	bytes       int64 // sum of the sizes of the events
}

type entry[E any] struct {
	event    E
	revision int64
	size     int64
}

// gap is a range of revisions, without its two ends, for which the log does not have every event. Its events still
// lead to the right state at the end of the range.
type gap struct{ after, before int64 }

// Reset empties the log. From then on it must get all events with revisions above start. Positions continue.
func (l *Log[E]) Reset(start int64) {
	*l = Log[E]{first: l.next, next: l.next, start: start, last: start}
}

// Skip skips one position, so that a reader at the end of the log can detect that the log was restarted. The log must
// be empty.
func (l *Log[E]) Skip() {
	l.first++
	l.next++
}

// Resize sets the sizes of all events.
func (l *Log[E]) Resize(size func(event E) int64) {
	l.bytes = 0
	for p := l.first; p < l.next; p++ {
		e := l.at(p)
		e.size = size(e.event)
		l.bytes += e.size
	}
}

// Append adds an event and returns its position. The revision must not be below that of the previous event. size is the
// memory that the event keeps in use, in bytes.
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

// grow doubles the ring.
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

// Trim removes the oldest events while the log is larger than limit bytes, and calls dropped for each. It does not
// remove events of the last revision.
func (l *Log[E]) Trim(limit int64, dropped func(position uint64, event E)) {
	for l.bytes > limit && l.Len() > 0 && l.at(l.first).revision < l.last {
		l.drop(dropped)
	}
}

// Clear removes all events and calls dropped for each, the oldest first.
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

// AddGap records that the log does not have every event between two revisions (exclusive). The events of that range in
// the log, appended before or later, lead from the state at after to the state at before. A reader that knows the state
// of a revision inside the range cannot continue from the log.
func (l *Log[E]) AddGap(after, before int64) {
	if before-after > 1 {
		l.gaps = append(l.gaps, gap{after, before})
	}
}

// Covers reports whether a reader that knows everything up to revision can continue with the events of the log that
// have a higher revision.
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

// After returns the position of the first event with a higher revision, or Next if there is none.
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

// Get returns the event at a position, which must be in [First, Next).
func (l *Log[E]) Get(position uint64) E { return l.at(position).event }

// Revision returns the revision of the event at a position.
func (l *Log[E]) Revision(position uint64) int64 { return l.at(position).revision }

// First returns the position of the oldest event.
func (l *Log[E]) First() uint64 { return l.first }

// Next returns the position that the next event will get.
func (l *Log[E]) Next() uint64 { return l.next }

// Start returns the revision above which the log has every event.
func (l *Log[E]) Start() int64 { return l.start }

// Len returns the number of events.
func (l *Log[E]) Len() int { return int(l.next - l.first) }

// Bytes returns the sum of the sizes of the events.
func (l *Log[E]) Bytes() int64 { return l.bytes }
