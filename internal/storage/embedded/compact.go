package embedded

import (
	"context"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// compactHistory compacts the history that has left the window.
func (s *Store) compactHistory() {
	now := s.clock.readUptime()
	noted := s.history.windowSamples.add(now, s.hub.durable.Load())
	// A version that was replaced just after a sample could be read until then. So the state at the sample and everything
	// after it is kept.
	s.compactInBackground(s.history.windowSamples.expire(now - s.opts.HistoryWindow))
	if noted {
		s.saveSamples()
	}
}

// relieveLowSpace frees space while free space is below the reserve: it compacts history that is older than
// lowSpaceWindow, and wakes the reclaimer. What is kept beyond the compaction revision is given up earlier, before a write
// is refused. With enough space it only records a sample.
func (s *Store) relieveLowSpace() {
	now := s.clock.readUptime()
	s.history.lowSpaceSamples.add(now, s.hub.durable.Load())
	revision := s.history.lowSpaceSamples.expire(now - lowSpaceWindow)
	if s.space.nearlyLow(&s.opts) {
		s.giveUpKept()
	}
	if s.space.level.Load() == spaceEnough {
		return
	}
	if s.opts.HistoryWindow > 0 {
		s.compactInBackground(revision)
	}
	s.reclaimer.wakeIfNeeded(true)
}

// compactInBackground compacts up to revision and logs an error.
func (s *Store) compactInBackground(revision int64) {
	if err := s.compact(s.lifetime.stopped, revision); err != nil && s.lifetime.stopped.Err() == nil {
		s.opts.Logger.Error("history could not be compacted", "revision", revision, "error", err)
	}
}

// Compact implements storage.Store. It returns when all versions that are no longer readable are deleted. If it is
// cancelled, the next compaction deletes the rest.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := s.lifetime.enter(ctx); err != nil {
		return err
	}
	defer s.lifetime.leave()
	if revision < 0 {
		return errNegativeRevision
	}
	if durable := s.hub.durable.Load(); revision > durable {
		return &storage.FutureRevisionError{Revision: revision, Current: durable}
	}
	return s.compact(ctx, revision)
}

// compact sets the compaction revision to revision, which must be durable, and deletes what can no longer be read: for
// each logged change up to it the version before the change, tombstones, and the log records themselves. What the retention
// keeps longer is left, and given up here when its time has passed. The cost is proportional to the number of changes, not to
// the number of keys.
//
// Example: /a is put at 2 and 3 and deleted at 5, /b is put at 4. compact(5) reads the log records 2 to 5, and deletes
// /a at 2 (replaced at 3), /a at 3 (replaced at 5), the tombstone of /a at 5, and the four log records. /b at 4 stays.
func (s *Store) compact(ctx context.Context, revision int64) error {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	if revision > s.history.compacted.Load() {
		at, err := s.db.writtenAt(revision)
		if err != nil {
			return err
		}
		s.history.kept.Window = mark{revision, at.ms}
		s.history.compacted.Store(revision)
	}
	revision = s.history.compacted.Load()
	s.publishFloors()
	defer func() { s.reclaimer.wakeIfNeeded(s.space.level.Load() != spaceEnough) }()
	for _, p := range s.passes(revision) {
		if err := s.compactPass(ctx, p); err != nil {
			return err
		}
	}
	if most := s.keptLimit(); most > 0 { // of what is kept now
		return s.giveUp(ctx, most)
	}
	return nil
}

// compactPass does the steps of a pass.
func (s *Store) compactPass(ctx context.Context, p pass) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if done, err = s.compactStep(p); err != nil {
			return err
		}
	}
	return nil
}

// compactStepRecords is the number of log records that one step of a compaction handles.
const compactStepRecords = 1024

// compactStep does one step of a pass, as one atomic batch: an operation is removed from the log together with
// the versions that it names, so that after a crash every version that must still be deleted has a log record. The
// batch is not synced: if it is lost, the step is done again. done is true if the pass has reached its end.
func (s *Store) compactStep(p pass) (done bool, err error) {
	k := &s.history.kept
	before := k.passed(p)
	from := before.Revision
	if from >= p.through || p.cut && k.Bytes <= p.most || p.victims != nil && p.victims.left <= 0 {
		return true, nil
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: logKey(from + 1), UpperBound: logKey(p.through + 1)})
	if err != nil {
		return false, err
	}
	defer it.Close()
	logged, err := s.db.NewIter(logSpan())
	if err != nil {
		return false, err
	}
	defer logged.Close()
	b := s.db.NewBatch()
	defer b.Close()
	step := compactionStep{pass: p, kept: k, batch: b, logged: logged, newest: s.hub.durable.Load(), last: before}
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
	s.publishFloors()
	mustSucceed(b.Set([]byte(metaCompacted), encodeNumber(s.history.compacted.Load()), nil))
	mustSucceed(b.Set([]byte(metaKept), k.encode(), nil))
	if err := s.db.applyUnsynced(b); err != nil {
		return false, err
	}
	s.reclaimer.add(&step.deleted)
	return done, nil
}

// compactionStep is one step of a pass.
type compactionStep struct {
	pass   pass
	kept   *kept
	batch  *pebble.Batch
	logged *pebble.Iterator // over the log, up to the revision newest
	newest int64

	last    mark // the last record that was examined
	records int
	left    int     // records that stay
	gone    []int64 // those that do not
	bytes   int64   // by which Kept.Bytes grows
	deleted garbage
	ops     []byte // memory for a record
}

// record examines the log record at the position of the iterator. end is true if the pass does not reach it.
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

// deleteRecords deletes the records after from that do not stay.
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
