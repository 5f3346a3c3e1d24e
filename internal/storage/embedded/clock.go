package embedded

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"
)

// storeClock measures two times that changes of the wall clock do not affect:
//
//   - The store time, by which keys expire. It starts at the wall-clock time when the store is created, and advances
//     by the time that really passes. While no process has the store open, it advances with the wall clock, but by
//     maxStoppedCredit at most, because a clock that was set forward cannot be distinguished from a long stop.
//   - The uptime, by which history is kept: the total time during which processes have had the store open.
//
// Both are saved in the database, so that many short processes count like a long one. Example: the wall clock of a
// store is set forward by a day at 12:00. One minute later the store time is 12:01, and an Event that expires at 13:00
// still exists. The deadlines of new keys are computed from 12:01, too.
type storeClock struct {
	wall      func() time.Time
	monotonic func() time.Duration

	mu          sync.Mutex    // guards the fields below, except lastSaved
	lastReading time.Duration // result of monotonic when the times were advanced last
	time        int64         // store time in full milliseconds since 1970
	remainder   time.Duration // part of the store time that is not in time, below one millisecond
	uptime      time.Duration
	loggedLead  time.Duration // lead of the wall clock over the store time that was logged last

	// lastSaved is the time at which the clock was saved last, and the revision at that time. Only check uses it.
	lastSaved revisionSample
}

// maxStoppedCredit is the longest time during which the server was stopped that counts for times to live. After a
// longer stop, keys are removed later by the excess.
const maxStoppedCredit = 10 * time.Minute

// clockTolerance is the largest difference between the changes of the wall clock and of the store time that is not
// logged.
const clockTolerance = time.Minute

// savedClock is the state of the clock in the database.
type savedClock struct {
	time, wall int64 // Unix milliseconds
	uptime     time.Duration
}

// newStoreClock returns a clock that continues from saved. saved is nil if the store has no saved clock.
func newStoreClock(wall func() time.Time, monotonic func() time.Duration, saved *savedClock) *storeClock {
	c := &storeClock{wall: wall, monotonic: monotonic, lastReading: monotonic(), time: wall().UnixMilli()}
	if saved != nil {
		stopped := min(max(c.time-saved.wall, 0), maxStoppedCredit.Milliseconds())
		c.time, c.uptime = saved.time+stopped, saved.uptime
	}
	c.loggedLead = c.wallLead()
	return c
}

// advance advances both times to now. If the monotonic clock goes back, which only happens in tests, they do not
// change. The caller holds mu.
func (c *storeClock) advance() {
	now := c.monotonic()
	passed := max(now-c.lastReading, 0)
	c.lastReading = now
	c.uptime += passed
	passed += c.remainder
	c.time += passed.Milliseconds()
	c.remainder = passed % time.Millisecond
}

// now returns the store time in Unix milliseconds.
func (c *storeClock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	return c.time
}

// readUptime returns the uptime now.
func (c *storeClock) readUptime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	return c.uptime
}

// wallLead returns the wall-clock time minus the store time. The caller holds mu, or no other goroutine has c yet.
func (c *storeClock) wallLead() time.Duration {
	return time.Duration(c.wall().UnixMilli()-c.time) * time.Millisecond
}

// wallClockSet returns by how much the wall clock was set forward (negative: back) since it last returned a value
// other than 0. It returns 0 if this is not more than clockTolerance.
func (c *storeClock) wallClockSet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	by := c.wallLead() - c.loggedLead
	if by.Abs() <= clockTolerance {
		return 0
	}
	c.loggedLead += by
	return by
}

// snapshot returns the current state of the clock, for saving.
func (c *storeClock) snapshot() savedClock {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	return savedClock{time: c.time, wall: c.wall().UnixMilli(), uptime: c.uptime}
}

// toWallTime converts a deadline from store time to the wall-clock time at which c was saved. If the clocks differ
// by less than a second, it returns the deadline unchanged, because such a difference only shows that they were
// read one after the other.
func (c savedClock) toWallTime(deadline int64) int64 {
	lag := c.wall - c.time
	if deadline == 0 || max(lag, -lag) < 1000 || lag > math.MaxInt64-deadline {
		return deadline
	}
	return max(deadline+lag, 1)
}

func (c savedClock) encode() []byte {
	b := make([]byte, 0, 24)
	for _, n := range []int64{c.time, c.wall, c.uptime.Milliseconds()} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func decodeClock(b []byte) (savedClock, error) {
	if len(b) != 24 {
		return savedClock{}, fmt.Errorf("%w: clock of %d bytes", errCorrupt, len(b))
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	n := [3]int64{}
	for i := range n {
		// A wall clock may be before 1970.
		if n[i] = int64(binary.BigEndian.Uint64(b[8*i:])); n[i] > most || n[i] < -most {
			return savedClock{}, fmt.Errorf("%w: clock", errCorrupt)
		}
	}
	if n[2] < 0 {
		return savedClock{}, fmt.Errorf("%w: clock", errCorrupt)
	}
	return savedClock{n[0], n[1], time.Duration(n[2]) * time.Millisecond}, nil
}

// openClock returns the clock of a database. It continues from the saved clock. It logs if the time since the last
// process counts only in part.
func openClock(db *database) (*storeClock, error) {
	saved, err := db.savedClock()
	if err != nil {
		return nil, err
	}
	c := newStoreClock(db.opts.Clock, db.opts.Monotonic, saved)
	if saved == nil {
		return c, nil
	}
	stopped := time.Duration(db.opts.Clock().UnixMilli()-saved.wall) * time.Millisecond
	switch {
	case stopped > maxStoppedCredit:
		db.opts.Logger.Info("by the wall clock the server was stopped for long; only part of that counts for times to live, "+
			"because a clock that was set forward looks the same", "stopped", stopped, "counted", maxStoppedCredit)
	case stopped < -clockTolerance:
		db.opts.Logger.Warn("the wall clock was set back while the server was stopped; "+
			"times to live go on from where they were", "by", -stopped)
	}
	return c, nil
}

// check logs when the wall clock was set, and saves the clock: once a second while keys or history may expire,
// otherwise once a minute. durable and compacted are the revisions of the store. The write is not synced: after a
// power cut the clock may be a little behind, and keys expire a little late.
func (c *storeClock) check(db *database, durable, compacted int64) {
	if by := c.wallClockSet(); by > 0 {
		db.opts.Logger.Warn("the wall clock was set forward, or the machine was asleep; "+
			"times to live go on by the time that really passed", "by", by)
	} else if by < 0 {
		db.opts.Logger.Warn("the wall clock was set back; times to live go on by the time that really passed", "by", -by)
	}
	const idle = time.Minute
	up := c.readUptime()
	if durable == c.lastSaved.revision && durable == compacted && up < c.lastSaved.uptime+idle {
		return
	}
	if !db.mayWrite() {
		return
	}
	b := db.NewBatch()
	defer b.Close()
	mustSucceed(b.Set([]byte(metaClock), c.snapshot().encode(), nil))
	if db.applyUnsynced(b) == nil {
		c.lastSaved = revisionSample{up, durable}
	}
}
