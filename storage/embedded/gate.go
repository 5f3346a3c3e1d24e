package embedded

import (
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// gate decides when the database may merge tables. A merge writes its result before it
// can remove what it read, so that it takes space, also to free some. It may take it only
// down to the merge floor, half of the reserve: what lies below is for the log, for
// deletions by clients, and for the flushes that both need. The gate is the database's
// scheduler of merges, and a file system in which their writes fail below the floor. To
// the database such a merge was cancelled, and it asks for it again; a failed write of
// the log would stop the store.
//
// When a merge has failed, puts are refused as if the space were below the reserve, until
// a merge succeeds or there is more space: without merges the database would take puts
// for a while, and then hold up all writes.
type gate struct {
	vfs.FS
	space *spaceWatch
	opts  *Options

	db   pebble.DBForCompaction // set by Register, before all other calls
	poke chan struct{}          // capacity 1: there may be something to grant
	end  chan struct{}          // closed by Unregister

	// granting is held while the database is asked what it wants to merge. It comes
	// before the database's locks, mu after them.
	granting sync.Mutex

	mu      sync.Mutex // guards what follows
	running int        // merges under way
	ended   bool
	budget  int64         // bytes that merges may write before the space is looked up again
	wait    time.Duration // how long merges wait after the next failure
	until   time.Time     // when they go on after the last one
	failed  bool          // whether a merge that is under way has failed
	begun   int64         // the room when the last merge began
	// starved says that a merge has failed, and none has succeeded since; too little is
	// the room that it began with.
	starved   bool
	tooLittle int64
	due       bool // look will be called later
}

// errKeepReserve is why a merge failed. For any other error the database would leave the
// tables of the merge alone for half a minute.
var errKeepReserve = fmt.Errorf("the space that is left is reserved for the log: %w", pebble.ErrCancelledCompaction)

const (
	// gateBudget is how much merges write between two looks at the free space.
	gateBudget = 1 << 20
	// Merges that found no space are tried again after gateWait, and after twice as long
	// each time until one succeeds.
	gateWait    = time.Second
	gateMaxWait = 30 * time.Second
)

func newGate(s *Store) *gate {
	return &gate{
		FS: s.opts.FS, space: &s.space, opts: &s.opts,
		poke: make(chan struct{}, 1), end: make(chan struct{}), wait: gateWait,
	}
}

// mergeFloor is the free space that merges leave.
func (o *Options) mergeFloor() int64 { return max(o.ReserveBytes, 0) / 2 }

// room returns how much merges may write; the second result is false if the file system
// cannot tell, or if there is no reserve.
func (g *gate) room() (int64, bool) {
	if g.opts.ReserveBytes < 0 {
		return 0, false
	}
	available, _, err := g.space.available(g.opts)
	return int64(min(available, 1<<62)) - g.opts.mergeFloor(), err == nil
}

// mayStart says whether one more merge may begin. The caller holds mu.
func (g *gate) mayStart() bool {
	if g.ended || g.running >= g.db.GetAllowedWithoutPermission() {
		return false
	}
	if wait := time.Until(g.until); wait > 0 {
		g.later(wait)
		return false
	}
	room, known := g.room()
	if known && room <= 0 {
		g.later(gateWait)
		return false
	}
	g.begun = room
	return true
}

// later has look called after d. The caller holds mu.
func (g *gate) later(d time.Duration) {
	if g.due {
		return
	}
	g.due = true
	time.AfterFunc(d, func() {
		g.mu.Lock()
		g.due = false
		g.mu.Unlock()
		g.look()
	})
}

// Register implements pebble.CompactionScheduler.
func (g *gate) Register(_ int, db pebble.DBForCompaction) {
	g.db = db
	go func() {
		for {
			select {
			case <-g.poke:
				g.grant()
			case <-g.end:
				return
			}
		}
	}()
}

// Unregister implements pebble.CompactionScheduler.
func (g *gate) Unregister() {
	g.granting.Lock() // no call of the database is under way, and there will be none
	defer g.granting.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	close(g.end)
}

// TrySchedule implements pebble.CompactionScheduler.
func (g *gate) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mayStart() {
		return false, nil
	}
	g.running++
	return true, grant{g}
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (g *gate) UpdateGetAllowedWithoutPermission() { g.look() }

// look makes the gate see whether a merge that waits may begin.
func (g *gate) look() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// grant begins the merges that wait, as far as they may.
func (g *gate) grant() {
	g.granting.Lock()
	defer g.granting.Unlock()
	for g.reserve() {
		waiting, _ := g.db.GetWaitingCompaction()
		if !waiting || !g.db.Schedule(grant{g}) {
			g.mu.Lock()
			g.running--
			g.starved = g.starved && waiting
			g.mu.Unlock()
			return
		}
	}
}

// reserve counts one more merge, if it may begin.
func (g *gate) reserve() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mayStart() {
		return false
	}
	g.running++
	return true
}

// hurry ends the wait after a failure: something is different.
func (g *gate) hurry() {
	g.mu.Lock()
	g.wait, g.until = gateWait, time.Time{}
	g.mu.Unlock()
	g.look()
}

// isStarved says whether merges lack space.
func (g *gate) isStarved() bool {
	g.mu.Lock()
	starved, room := g.starved, g.tooLittle
	g.mu.Unlock()
	if !starved {
		return false
	}
	if now, known := g.room(); known && now < room+g.opts.ReserveBytes/4 {
		return true
	}
	g.mu.Lock()
	g.starved = false
	g.mu.Unlock()
	g.hurry()
	return false
}

// grant is the permission of one merge.
type grant struct{ g *gate }

// Started implements pebble.CompactionGrantHandle.
func (grant) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (grant) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (grant) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle.
func (m grant) Done() {
	m.g.mu.Lock()
	m.g.running--
	if m.g.failed {
		m.g.failed = false
	} else {
		m.g.starved, m.g.wait = false, gateWait
	}
	m.g.mu.Unlock()
	m.g.look()
}

// paceTables is how many layers of new tables may wait to be merged before writes wait.
const paceTables = 12

// keepPace waits while writes are ahead of the merges of what was written, unless merges
// lack space: then puts are refused, and deletions must not wait for what cannot happen.
func (s *Store) keepPace() {
	for s.pipeline.failure.Load() == nil && s.db.Metrics().Levels[0].Sublevels >= paceTables && !s.gate.isStarved() {
		time.Sleep(paceWait)
	}
}

// paceWait is the time between two looks at what waits to be merged.
const paceWait = 2 * time.Millisecond

// mergeCategory is what the database says of the files that a merge writes.
const mergeCategory vfs.DiskWriteCategory = "pebble-compaction"

// Create implements vfs.FS.
func (g *gate) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == mergeCategory {
		if err := g.spend(0); err != nil {
			return nil, err
		}
	}
	f, err := g.FS.Create(name, category)
	if err != nil || category != mergeCategory {
		return f, err
	}
	return &mergeFile{f, g}, nil
}

// Unwrap implements vfs.FS.
func (g *gate) Unwrap() vfs.FS { return g.FS }

// mergeFile is a file that a merge writes.
type mergeFile struct {
	vfs.File
	gate *gate
}

// Write implements vfs.File.
func (f *mergeFile) Write(b []byte) (int, error) {
	if err := f.gate.spend(len(b)); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

// spend counts n bytes of a merge. It fails if there would be less than the floor.
func (g *gate) spend(n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.budget >= int64(n) && n > 0 {
		g.budget -= int64(n)
		return nil
	}
	room, known := g.room()
	switch {
	case !known:
		room = gateBudget
	case room < int64(n) || room <= 0:
		g.until, g.wait = time.Now().Add(g.wait), min(2*g.wait, gateMaxWait)
		g.failed, g.starved, g.tooLittle = true, true, g.begun
		return errKeepReserve
	}
	g.budget = min(room, gateBudget) - int64(n)
	return nil
}
