package embedded

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// compactor raises the compaction revision, and deletes versions that can no longer be read: those that have left
// the history window and are not kept by the retention, and kept ones when their time, or the space for them, has
// ended. Readers use compacted and floors without a lock.
type compactor struct {
	db        *database
	hub       *hub // has the durable revision
	clock     *storeClock
	reclaimer *reclaimer // records what was deleted

	// compacted is the compaction revision, 0 if nothing was ever compacted. It is written while mu is held, before
	// the first deletion of a compaction.
	compacted atomic.Int64

	limit  int64 // largest size of the kept history on the disk, in bytes
	holder holder

	mu   sync.Mutex // held during a compaction; guards kept, keptClock and givenUp
	kept kept
	// givenUp has the bytes of versions that were deleted before the end of their retention, by share
	// (storage.Kept.GivenUp). The map is replaced and never changed.
	givenUp   map[string]int64
	keptClock keepClock
	// floors are the lowest revisions that can be read. They are computed from kept. When a floor rises, the new
	// floors are stored here before the first deletion.
	floors atomic.Pointer[floors]

	// windowSamples finds the revision that leaves Options.HistoryWindow, and lowSpaceSamples the revision that
	// leaves lowSpaceWindow. After Open only the maintenance goroutine uses them, and Close uses them after that
	// goroutine has ended.
	windowSamples, lowSpaceSamples *revisionSamples
}

// compactWindow compacts the history that has left the window.
func (c *compactor) compactWindow(ctx context.Context) {
	now := c.clock.readUptime()
	noted := c.windowSamples.add(now, c.hub.durable.Load())
	// A version that was replaced just after a sample was readable until that moment. So the state at the sample
	// and all later versions are kept.
	c.compactInBackground(ctx, c.unheld(c.windowSamples.expire(now-c.db.opts.HistoryWindow)))
	if noted {
		c.saveSamples()
	}
}

// relieveLowSpace frees space while free space is below the reserve: it compacts history that is older than
// lowSpaceWindow, and wakes the reclaimer. History that is kept beyond the compaction revision is deleted earlier,
// before a write has to be refused. If there is enough space, relieveLowSpace only records a sample.
func (c *compactor) relieveLowSpace(ctx context.Context) {
	now := c.clock.readUptime()
	c.lowSpaceSamples.add(now, c.hub.durable.Load())
	revision := c.lowSpaceSamples.expire(now - lowSpaceWindow)
	if c.db.space.nearlyLow(c.db.opts) {
		c.giveUpKept()
	}
	if !c.db.space.isLow() {
		return
	}
	if c.db.opts.HistoryWindow > 0 {
		c.compactInBackground(ctx, revision)
	}
	c.reclaimer.wakeIfNeeded(true)
}

// compactInBackground compacts up to revision and logs an error.
func (c *compactor) compactInBackground(ctx context.Context, revision int64) {
	if err := c.compact(ctx, revision); err != nil && ctx.Err() == nil {
		c.db.opts.Logger.Error("history could not be compacted", "revision", revision, "error", err)
	}
}

// compact sets the compaction revision to revision, which must be durable, and deletes what can no longer be read:
// for each logged change up to that revision the version before the change, tombstones, and the log records
// themselves. Versions that the retention keeps longer are left. They are deleted here when their time has passed.
// The cost is proportional to the number of changes, not to the number of keys.
//
// Example: /a is put at 2 and 3 and deleted at 5, /b is put at 4. compact(5) reads the log records 2 to 5, and deletes
// /a at 2 (replaced at 3), /a at 3 (replaced at 5), the tombstone of /a at 5, and the four log records. /b at 4 stays.
func (c *compactor) compact(ctx context.Context, revision int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision > c.compacted.Load() {
		at, err := c.db.writtenAt(revision)
		if err != nil {
			return err
		}
		c.kept.Window = mark{revision, at.ms}
		c.compacted.Store(revision)
	}
	revision = c.compacted.Load()
	c.publishFloors()
	defer func() { c.reclaimer.wakeIfNeeded(c.db.space.isLow()) }()
	for _, p := range c.passes(revision) {
		if err := c.run(ctx, p); err != nil {
			return err
		}
	}
	if most := c.rawLimit(c.kept.Bytes); most > 0 { // size limit for the history that is kept now
		return c.giveUp(ctx, most)
	}
	return nil
}

// run does the steps of a pass.
func (c *compactor) run(ctx context.Context, p pass) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if done, err = c.step(p); err != nil {
			return err
		}
	}
	return nil
}

// compactStepRecords is the number of log records that one step of a compaction handles.
const compactStepRecords = 1024

// step does one step of a pass, as one atomic batch. It removes an operation from the log together with the
// versions that the operation names. So after a crash, every version that must still be deleted has a log record.
// The batch is not synced: if it is lost, the step is done again. done is true if the pass has reached its end.
func (c *compactor) step(p pass) (done bool, err error) {
	k := &c.kept
	before := k.passed(p)
	from := before.Revision
	if from >= p.through || p.cut && k.Bytes <= p.most || p.victims != nil && p.victims.left <= 0 {
		return true, nil
	}
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: logKey(from + 1), UpperBound: logKey(p.through + 1)})
	if err != nil {
		return false, err
	}
	defer it.Close()
	logged, err := c.db.NewIter(logSpan())
	if err != nil {
		return false, err
	}
	defer logged.Close()
	b := c.db.NewBatch()
	defer b.Close()
	step := compactionStep{pass: p, kept: k, batch: b, logged: logged, newest: c.hub.durable.Load(), last: before}
	done = true
	for ok := it.First(); ok; ok = it.Next() {
		end, err := step.record(it)
		if err != nil {
			return false, err
		}
		if end {
			break
		}
		if step.records++; step.records == compactStepRecords {
			done = false
			break
		}
	}
	if err := it.Error(); err != nil {
		return false, err
	}
	if done && p.before == 0 {
		step.last.Revision = p.through
	}
	step.deleteRecords(from)
	k.advance(p, step.last, step.bytes)
	c.publishFloors()
	mustSucceed(b.Set([]byte(metaCompacted), encodeNumber(c.compacted.Load()), nil))
	mustSucceed(b.Set([]byte(metaKept), k.encode(), nil))
	if err := c.db.applyUnsynced(b); err != nil {
		return false, err
	}
	c.reclaimer.add(&step.deleted)
	return done, nil
}

// compactionStep is one step of a pass.
type compactionStep struct {
	pass   pass
	kept   *kept
	batch  *pebble.Batch
	logged *pebble.Iterator // iterator over the log up to the revision newest
	newest int64

	last    mark // the last record that was examined
	records int
	left    int     // number of records that stay
	gone    []int64 // revisions of the records that are deleted
	bytes   int64   // number of bytes by which Kept.Bytes grows
	deleted garbage
	ops     []byte // reused buffer for a record
}

// record examines the log record at the position of the iterator. end is true if the pass ends before this record.
func (c *compactionStep) record(it *pebble.Iterator) (end bool, err error) {
	at, err := parseLogKey(it.Key())
	if err != nil {
		return false, err
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return false, err
	}
	w, _, err := cutWritten(value)
	if err != nil {
		return false, err
	}
	if c.pass.before != 0 && w.ms > c.pass.before {
		written, err := writtenBefore(c.logged, at, w.ms, c.pass.now, c.newest)
		if err != nil || written > c.pass.before {
			return true, err
		}
	}
	c.last = mark{at, w.ms}
	rest := appendWritten(c.ops[:0], w)
	empty, given := len(rest), false
	err = decodeLog(value, func(key []byte, op logOp) error {
		size := op.keptBytes(len(key), len(w.by))
		if !c.pass.gives(c.kept, key, op, size) {
			if c.pass.counts {
				c.bytes += size
			}
			op.key = string(key)
			rest = appendLogOp(rest, op)
			return nil
		}
		given = true
		if !c.pass.counts {
			c.bytes -= size
		}
		if c.pass.victims != nil {
			c.kept.lose(string(key), c.last)
		}
		if op.prev != 0 {
			deleteVersion(c.batch, &c.deleted, string(key), op)
		}
		if op.deleted {
			mustSucceed(c.batch.Delete(appendVersionKey(nil, string(key), at), nil))
		}
		return nil
	})
	c.ops = rest
	switch {
	case err != nil:
	case len(rest) > empty:
		c.left++
		if given {
			err = c.batch.Set(logKey(at), rest, nil)
		}
	default:
		c.gone = append(c.gone, at)
	}
	return false, err
}

// deleteRecords deletes the examined records after the revision from, except those that stay.
func (c *compactionStep) deleteRecords(from int64) {
	if c.left == 0 {
		mustSucceed(c.batch.DeleteRange(logKey(from+1), logKey(c.last.Revision+1), nil))
		return
	}
	for _, at := range c.gone {
		mustSucceed(c.batch.Delete(logKey(at), nil))
	}
}

// deleteVersion deletes the version that op replaced, and adds its size to deleted. The deletion contains the size if
// it is known, so that Pebble can compute how many bytes a merge would free.
func deleteVersion(b *pebble.Batch, deleted *garbage, key string, op logOp) {
	k := appendVersionKey(nil, key, op.prev)
	if op.prevSize == 0 || op.prevSize > math.MaxUint32 {
		mustSucceed(b.Delete(k, nil))
	} else {
		mustSucceed(b.DeleteSized(k, uint32(op.prevSize), nil))
	}
	deleted.add(key, key, int64(len(k))+op.prevSize)
}
