package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// storeClock keeps two times that the wall clock cannot move:
//
//   - the store time, by which keys expire. It begins at the wall clock's time when the
//     store is new, and goes on by the time that really passes. While no process has the
//     store open, it goes on by what the wall clock says, by maxCredit at most: a clock
//     that was set forward looks just like a long stop.
//   - the uptime, by which history is kept: for how long processes have had the store
//     open, all together.
//
// Both are saved in the database, so that many short processes count like a long one. An
// example: a store at 12:00 whose wall clock is set forward by a day. One minute later
// the store time is 12:01, and an Event that expires at 13:00 is still there; deadlines
// of new keys are reckoned from 12:01 too.
type storeClock struct {
	wall      func() time.Time
	monotonic func() time.Duration

	mu     sync.Mutex // guards what follows
	read   time.Duration
	time   int64         // store time, Unix milliseconds, without the part of a millisecond in rest
	rest   time.Duration // below one millisecond
	uptime time.Duration
	lead   time.Duration // of the wall clock over the store time, as last logged
}

// maxCredit bounds what a stop counts for times to live. A server that was stopped for
// longer removes what expired meanwhile so much later.
const maxCredit = 10 * time.Minute

// clockTolerance is how far the wall clock may move away from the store time before
// that is logged.
const clockTolerance = time.Minute

// savedClock is what the database has of the clock.
type savedClock struct {
	time, wall int64 // Unix milliseconds
	uptime     time.Duration
}

// newStoreClock begins where saved ends; nil is a store that has no saved clock.
func newStoreClock(wall func() time.Time, monotonic func() time.Duration, saved *savedClock) *storeClock {
	c := &storeClock{wall: wall, monotonic: monotonic, read: monotonic(), time: wall().UnixMilli()}
	if saved != nil {
		stopped := min(max(c.time-saved.wall, 0), maxCredit.Milliseconds())
		c.time, c.uptime = saved.time+stopped, saved.uptime
	}
	c.lead = c.ahead()
	return c
}

// advance moves both times on to now. A monotonic clock that goes back, which only one
// made for a test does, moves nothing. The caller holds mu.
func (c *storeClock) advance() {
	now := c.monotonic()
	passed := max(now-c.read, 0)
	c.read = now
	c.uptime += passed
	passed += c.rest
	c.time += passed.Milliseconds()
	c.rest = passed % time.Millisecond
}

// now returns the store time in Unix milliseconds.
func (c *storeClock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	return c.time
}

// up returns the uptime.
func (c *storeClock) up() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	return c.uptime
}

// ahead returns by how much the wall clock is ahead of the store time. The caller holds
// mu, or is the only one to know c.
func (c *storeClock) ahead() time.Duration {
	return time.Duration(c.wall().UnixMilli()-c.time) * time.Millisecond
}

// moved returns by how much the wall clock was set forward (or back, if negative) since
// moved last returned something else than 0; 0 while that is within the tolerance.
func (c *storeClock) moved() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	by := c.ahead() - c.lead
	if by.Abs() <= clockTolerance {
		return 0
	}
	c.lead += by
	return by
}

// saved returns what to save now.
func (c *storeClock) saved() savedClock {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	return savedClock{time: c.time, wall: c.wall().UnixMilli(), uptime: c.uptime}
}

// onWall returns a deadline, which is a store time, as a time of the wall clock of then.
// What differs by less than a second is one clock read twice.
func (c savedClock) onWall(deadline int64) int64 {
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

// savedClock reads the clock of the processes before; nil if there is none.
func (s *Store) savedClock() (*savedClock, error) {
	b, closer, err := s.db.Get([]byte(metaClock))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: reading %s: %w", s.opts.Dir, metaClock, err)
	}
	defer closer.Close()
	saved, err := decodeClock(b)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", s.opts.Dir, err)
	}
	return &saved, nil
}

// openClock begins the clock where the process before saved it, and says so if a stop
// does not count in full.
func (s *Store) openClock() error {
	saved, err := s.savedClock()
	if err != nil {
		return err
	}
	s.clock = newStoreClock(s.opts.Clock, s.opts.Monotonic, saved)
	if saved == nil {
		return nil
	}
	stopped := time.Duration(s.opts.Clock().UnixMilli()-saved.wall) * time.Millisecond
	switch {
	case stopped > maxCredit:
		s.opts.Logger.Info("by the wall clock the server was stopped for long; only part of that counts for times to live, "+
			"because a clock that was set forward looks the same", "stopped", stopped, "counted", maxCredit)
	case stopped < -clockTolerance:
		s.opts.Logger.Warn("the wall clock was set back while the server was stopped; "+
			"times to live go on from where they were", "by", -stopped)
	}
	return nil
}

// watchClock logs when the wall clock was set, and saves the clock: each second while
// that decides when history or keys go, otherwise now and then. It is not synced: after a
// power cut the clock is a little behind, and things go a little later.
func (s *Store) watchClock() {
	if by := s.clock.moved(); by > 0 {
		s.opts.Logger.Warn("the wall clock was set forward, or the machine was asleep; "+
			"times to live go on by the time that really passed", "by", by)
	} else if by < 0 {
		s.opts.Logger.Warn("the wall clock was set back; times to live go on by the time that really passed", "by", -by)
	}
	const idle = time.Minute
	durable := s.hub.durable.Load()
	up := s.clock.up()
	if durable == s.clockSaved.revision && durable == s.compacted.Load() && up < s.clockSaved.time+idle {
		return
	}
	if s.pipeline.failure.Load() != nil || s.space.level.Load() == spaceCritical {
		return
	}
	b := s.db.NewBatch()
	defer b.Close()
	must(b.Set([]byte(metaClock), s.clock.saved().encode(), nil))
	if s.write(b) == nil {
		s.clockSaved = mark{up, durable}
	}
}
