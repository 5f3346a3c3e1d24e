package embedded

import (
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// mergeScheduler decides when the database may merge tables, so that merges do not use the reserved space. A merge
// writes its result before the tables that it has read can be removed. So a merge takes space for a while, even if
// it frees space in the end. Merges may use the space down to the merge floor, which is half of
// Options.ReserveBytes. The space below the floor is for the log, for deletions by clients, and for the flushes of
// memtables that these cause.
//
// mergeScheduler is the pebble.CompactionScheduler of the database, and also its file system, in which writes of merges
// fail below the floor. Such a write fails with pebble.ErrCancelledCompaction, so that Pebble asks for the merge again.
// (A failed write of the log, in contrast, would stop the store.)
//
// After a merge has failed for lack of space, puts are refused as if the free space were below the reserve, until a
// merge succeeds or until there is more space. Without merges the database would accept puts for a while and then block
// all writes.
type mergeScheduler struct {
	vfs.FS
	disk *diskSpace
	opts *Options

	db      pebble.DBForCompaction // set by Register, which Pebble calls before all other methods
	wake    chan struct{}          // capacity 1; receives when a waiting merge may be able to start
	stopped chan struct{}          // closed by Unregister

	// granting is held while Pebble is asked for its next merge. Locks are taken in this order: granting, locks of
	// Pebble, mu.
	granting sync.Mutex

	mu            sync.Mutex // guards the fields below
	running       int        // number of merges that run
	runningFailed bool       // one of the running merges has failed
	// refused means that TrySchedule has refused a merge since tryStart last counted one as running. It avoids a
	// lost wake-up: startWaiting counts a merge as running before it knows whether one will start. If TrySchedule
	// refuses another merge meanwhile, and the counted one does not start, then no running merge would end and
	// wake the refused one. In this case startWaiting signals again.
	refused  bool
	stopping bool // Unregister was called
	retry    mergeRetry
	space    mergeSpace
	// damaged means that a merge has met damaged data since Open. That merge will always fail, so that new tables may stay unmerged.
	damaged bool
}

// mergeRetry delays merges after a failed merge.
type mergeRetry struct {
	delay     time.Duration // delay after the next failure
	notBefore time.Time     // no merge starts before this time
	timerSet  bool          // a timer will call signal
}

// mergeSpace is the state of the space for merges.
type mergeSpace struct {
	unchecked     int64 // bytes that merges may still write before the free space is measured again
	roomAtStart   int64 // result of room when the last merge started
	lacking       bool  // a merge has failed for lack of space, and none has succeeded since
	roomAtFailure int64 // roomAtStart of the merge that failed
}

// errMergeNeedsReserve is the error of a merge that found no space. It wraps ErrCancelledCompaction, because after
// other errors Pebble does not merge the same tables for half a minute.
var errMergeNeedsReserve = fmt.Errorf(
	"the space that is left is reserved for the log: %w", pebble.ErrCancelledCompaction,
)

const (
	// mergeCheckBytes is the number of bytes that merges write between two checks of the free space.
	mergeCheckBytes = 1 << 20
	// minMergeRetry is the delay of merges after one that found no space. The delay doubles with each failure, up to
	// maxMergeRetry, until a merge succeeds.
	minMergeRetry = time.Second
	maxMergeRetry = 30 * time.Second
)

func newMergeScheduler(s *Store) *mergeScheduler {
	return &mergeScheduler{
		FS: checkBlocks(&s.opts), disk: &s.space, opts: &s.opts,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), retry: mergeRetry{delay: minMergeRetry},
	}
}

// mergeFloor returns the free space that merges must leave, in bytes.
func (o *Options) mergeFloor() int64 { return max(o.ReserveBytes, 0) / 2 }

// room returns how many bytes merges may write. known is false if the file system does not report its free space, or if
// there is no reserve.
func (m *mergeScheduler) room() (bytes int64, known bool) {
	if m.opts.ReserveBytes < 0 {
		return 0, false
	}
	available, _, err := m.disk.available(m.opts)
	return int64(min(available, 1<<62)) - m.opts.mergeFloor(), err == nil
}

// mayStart reports whether one more merge may start. If it may not start yet because of a delay or a lack of
// space, mayStart sets a timer that tries again. The caller holds mu.
func (m *mergeScheduler) mayStart() bool {
	if m.stopping || m.running >= m.db.GetAllowedWithoutPermission() {
		return false
	}
	if wait := time.Until(m.retry.notBefore); wait > 0 {
		m.signalAfter(wait)
		return false
	}
	room, known := m.room()
	if known && room <= 0 {
		m.signalAfter(minMergeRetry)
		return false
	}
	m.space.roomAtStart = room
	return true
}

// signalAfter calls signal after d, unless a timer is set already. The caller holds mu.
func (m *mergeScheduler) signalAfter(d time.Duration) {
	if m.retry.timerSet {
		return
	}
	m.retry.timerSet = true
	time.AfterFunc(d, func() {
		m.mu.Lock()
		m.retry.timerSet = false
		m.mu.Unlock()
		m.signal()
	})
}

// Register implements pebble.CompactionScheduler. It starts the goroutine that starts waiting merges.
func (m *mergeScheduler) Register(_ int, db pebble.DBForCompaction) {
	m.db = db
	go func() {
		for {
			select {
			case <-m.wake:
				m.startWaiting()
			case <-m.stopped:
				return
			}
		}
	}()
}

// Unregister implements pebble.CompactionScheduler.
func (m *mergeScheduler) Unregister() {
	m.granting.Lock() // no call of m.db is in progress, and none begins after this
	defer m.granting.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
	close(m.stopped)
}

// TrySchedule implements pebble.CompactionScheduler.
func (m *mergeScheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayStart() {
		m.refused = true
		return false, nil
	}
	m.running++
	return true, mergePermission{m}
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (m *mergeScheduler) UpdateGetAllowedWithoutPermission() { m.signal() }

// signal wakes the goroutine that starts waiting merges.
func (m *mergeScheduler) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// startWaiting starts the merges that wait, as long as they may start.
func (m *mergeScheduler) startWaiting() {
	m.granting.Lock()
	defer m.granting.Unlock()
	for m.tryStart() {
		waiting, _ := m.db.GetWaitingCompaction()
		if !waiting || !m.db.Schedule(mergePermission{m}) {
			m.mu.Lock()
			m.running--
			m.space.lacking = m.space.lacking && waiting
			again := m.refused
			m.mu.Unlock()
			if again {
				m.signal()
			}
			return
		}
	}
}

// tryStart counts one more running merge and returns true, if one more merge may start.
func (m *mergeScheduler) tryStart() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayStart() {
		return false
	}
	m.running++
	m.refused = false
	return true
}

// retryNow ends the delay after a failure, because the situation has changed.
func (m *mergeScheduler) retryNow() {
	m.mu.Lock()
	m.retry.delay, m.retry.notBefore = minMergeRetry, time.Time{}
	m.mu.Unlock()
	m.signal()
}

// lacksSpace reports whether merges lack space. The lack ends when the room for merges has grown by a quarter of the
// reserve since the failed merge started.
func (m *mergeScheduler) lacksSpace() bool {
	m.mu.Lock()
	starved, room := m.space.lacking, m.space.roomAtFailure
	m.mu.Unlock()
	if !starved {
		return false
	}
	if now, known := m.room(); known && now < room+m.opts.ReserveBytes/4 {
		return true
	}
	m.mu.Lock()
	m.space.lacking = false
	m.mu.Unlock()
	m.retryNow()
	return false
}

// mayHelp reports whether the number of unmerged tables may fall if writes wait. After a merge has read damaged
// data, the next merge may be one that always fails, which cannot be known before it runs. So in that case waiting
// helps only while a merge is running.
func (m *mergeScheduler) mayHelp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.damaged || m.running > 0
}

// failedByDamage records that a merge has read damaged data. Pebble requests that merge again at once, but it may
// start only after a delay.
func (m *mergeScheduler) failedByDamage() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.damaged, m.runningFailed = true, true
	m.delayRetry()
}

// delayRetry delays the next merge after one that failed. The caller holds mu.
func (m *mergeScheduler) delayRetry() {
	m.retry.notBefore, m.retry.delay = time.Now().Add(m.retry.delay), min(2*m.retry.delay, maxMergeRetry)
}

type mergePermission struct{ scheduler *mergeScheduler }

// Started implements pebble.CompactionGrantHandle.
func (mergePermission) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (mergePermission) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (mergePermission) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle. Pebble calls it when the merge has ended.
func (m mergePermission) Done() {
	m.scheduler.mu.Lock()
	m.scheduler.running--
	if m.scheduler.runningFailed {
		m.scheduler.runningFailed = false
	} else {
		m.scheduler.space.lacking, m.scheduler.retry.delay = false, minMergeRetry
	}
	m.scheduler.mu.Unlock()
	m.scheduler.signal()
}

// maxUnmergedLayers limits the layers of unmerged new tables (sublevels of level 0). Writes wait while there are
// as many layers or more.
const maxUnmergedLayers = 12

// waitForMerges waits while there are too many unmerged tables. It does not wait while merges lack space: in this
// state puts are refused, and deletions must not wait for merges that cannot run. After a merge has read damaged
// data, it waits only while another merge is running. If none can run, reads become slower with each unmerged
// table, but all undamaged data can be used until the store is repaired.
func (m *mergeScheduler) waitForMerges(db *database) {
	for m.mustWait(db) {
		time.Sleep(mergePollInterval)
	}
}

// mustWait reports whether writes have to wait now.
func (m *mergeScheduler) mustWait(db *database) bool {
	return db.pipeline.failure.Load() == nil && db.Metrics().Levels[0].Sublevels >= maxUnmergedLayers &&
		!m.lacksSpace() && m.mayHelp()
}

// mergePollInterval is the time between two checks of the unmerged tables.
const mergePollInterval = 2 * time.Millisecond

// mergeCategory is the category with which Pebble creates the files that a merge writes.
const mergeCategory vfs.DiskWriteCategory = "pebble-compaction"

// Create implements vfs.FS. For a file of a merge it fails if there is no room for merges.
func (m *mergeScheduler) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == logCategory {
		return m.createLog(name)
	}
	if category == mergeCategory {
		if err := m.useSpace(0); err != nil {
			return nil, err
		}
	}
	f, err := m.FS.Create(name, category)
	if err != nil || category != mergeCategory {
		return f, err
	}
	return &mergeFile{f, m}, nil
}

// Unwrap implements vfs.FS.
func (m *mergeScheduler) Unwrap() vfs.FS { return m.FS }

// mergeFile is a file that a merge writes.
type mergeFile struct {
	vfs.File
	scheduler *mergeScheduler
}

// Write implements vfs.File. It fails if the free space would fall below the merge floor.
func (f *mergeFile) Write(b []byte) (int, error) {
	if err := f.scheduler.useSpace(len(b)); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

// useSpace accounts for n bytes that a merge is about to write; with n = 0 it only checks the space. It fails if less
// than the merge floor would be left.
func (m *mergeScheduler) useSpace(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.space.unchecked >= int64(n) && n > 0 {
		m.space.unchecked -= int64(n)
		return nil
	}
	room, known := m.room()
	switch {
	case !known:
		room = mergeCheckBytes
	case room < int64(n) || room <= 0:
		m.delayRetry()
		m.runningFailed, m.space.lacking, m.space.roomAtFailure = true, true, m.space.roomAtStart
		return errMergeNeedsReserve
	}
	m.space.unchecked = min(room, mergeCheckBytes) - int64(n)
	return nil
}
