package embedded

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// The times in the log are times of the wall clock, which may be wrong for a while. The code in this file prevents
// that a wrong clock removes history too early, or keeps it forever.

// settle is the time for which the wall clock must stay ahead, after it was set forward, before history is given
// up by its new time.
const settle = time.Hour

// keepClock is the clock that decides when history is given up. It follows the wall clock. When the wall clock is
// set forward, keepClock at first continues without the jump. It jumps only after the wall clock has stayed ahead
// for the time settle.
type keepClock struct {
	ms    int64         // the result of the last call of now, 0 before the first one
	up    time.Duration // uptime of the last call
	ahead bool          // the wall clock was set forward
	since time.Duration // the uptime at which that was noticed
}

// now returns the time of the clock in Unix milliseconds. wall is the time of the wall clock, and up is the
// uptime.
func (c *keepClock) now(wall int64, up time.Duration) int64 {
	passed := c.ms + (up - c.up).Milliseconds()
	if c.ms != 0 && wall > passed+clockTolerance.Milliseconds() {
		if !c.ahead {
			c.ahead, c.since = true, up
		}
		if up < c.since+settle {
			c.ms, c.up = passed, up
			return passed
		}
	}
	c.ms, c.up, c.ahead = wall, up, false
	return wall
}

// writtenBefore returns a time at or before which the log record of revision was written. ms is the time in the
// record. If ms is not after now, the result is ms. Otherwise the wall clock was wrong, and the result is the time
// of the next record whose time is not after now, or ms if there is no such record up to the revision last. it is
// an iterator over the log.
func writtenBefore(it *pebble.Iterator, revision, ms, now, last int64) (int64, error) {
	if ms <= now {
		return ms, nil
	}
	best := ms
	// Records with a wrong time follow each other. The search goes forward in growing steps to a record with a
	// right time, and then finds the first such record by a binary search.
	low, high := revision, last+1
	for step := int64(1); low+step < high; step *= 2 {
		r, w, ok, err := recordFrom(it, low+step)
		if err != nil {
			return 0, err
		}
		if !ok || r > last {
			high = min(high, low+step)
			break
		}
		if w.ms <= now {
			best, high = w.ms, low+step
			break
		}
		low = r
	}
	for low+1 < high {
		middle := low + (high-low)/2
		r, w, ok, err := recordFrom(it, middle)
		switch {
		case err != nil:
			return 0, err
		case !ok || r >= high:
			high = middle
		case w.ms <= now:
			best, high = w.ms, middle
		default:
			low = r
		}
	}
	return best, nil
}

// recordFrom returns the first log record at or after a revision; ok is false if there is none.
func recordFrom(it *pebble.Iterator, revision int64) (at int64, w written, ok bool, err error) {
	if !it.SeekGE(logKey(revision)) {
		return 0, w, false, it.Error()
	}
	at, w, err = currentWritten(it)
	return at, w, err == nil, err
}
