package embedded

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// The times in the log are those of the wall clock, which may be wrong for a while. This file has what keeps that from giving up
// history at once, or never.

// settle is how long the wall clock has to stay ahead, after it was set forward, until history is given up by the new
// time.
const settle = time.Hour

// keepClock is the clock by which history is given up: the wall clock, but when that was set forward, the time goes on from where it was
// until the wall clock has stayed so for settle.
type keepClock struct {
	ms    int64         // the time that was returned last, 0 before the first one
	up    time.Duration // the uptime then
	ahead bool          // the wall clock was set forward
	since time.Duration // the uptime at which that was noticed
}

// now returns the time in Unix milliseconds. wall is the wall clock, up the uptime.
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

// writtenBefore returns a time before which the log record of revision was written. ms is the time in the record. If
// ms is not after now, it returns ms. Otherwise the wall clock was ahead, and it returns the time of the next record
// that is not after now either; ms if there is none up to last. it is an iterator over the log.
func writtenBefore(it *pebble.Iterator, revision, ms, now, last int64) (int64, error) {
	if ms <= now {
		return ms, nil
	}
	best := ms
	// Records with a wrong time follow each other: look in growing steps for one with a right time, and by halves for the first one.
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
