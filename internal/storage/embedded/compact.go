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
// lowSpaceWindow, and wakes the reclaimer. With enough space it only records a sample.
func (s *Store) relieveLowSpace() {
	now := s.clock.readUptime()
	s.history.lowSpaceSamples.add(now, s.hub.durable.Load())
	revision := s.history.lowSpaceSamples.expire(now - lowSpaceWindow)
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
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if revision < 0 {
		return errNegativeRevision
	}
	if durable := s.hub.durable.Load(); revision > durable {
		return &storage.FutureRevisionError{Revision: revision, Current: durable}
	}
	return s.compact(ctx, revision)
}

// compact sets the compaction revision to revision, which must be durable, and deletes what can no longer be read: for
// each logged change up to it the version before the change, tombstones, and the log records themselves. The cost is
// proportional to the number of changes, not to the number of keys.
//
// Example: /a is put at 2 and 3 and deleted at 5, /b is put at 4. compact(5) reads the log records 2 to 5, and deletes
// /a at 2 (replaced at 3), /a at 3 (replaced at 5), the tombstone of /a at 5, and the four log records. /b at 4 stays.
func (s *Store) compact(ctx context.Context, revision int64) error {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	revision = max(revision, s.history.compacted.Load())
	if revision <= s.history.logDeletedTo {
		return nil
	}
	s.history.compacted.Store(revision)
	defer func() { s.reclaimer.wakeIfNeeded(s.space.level.Load() != spaceEnough) }()
	for s.history.logDeletedTo < revision {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.compactStep(revision); err != nil {
			return err
		}
	}
	return nil
}

// compactStepRecords is the number of log records that one step of a compaction handles.
const compactStepRecords = 1024

// compactStep does one step of a compaction up to revision, as one atomic batch: a log record is deleted together with
// the versions that it names, so that after a crash every version that must still be deleted has a log record. The
// batch is not synced: if it is lost, the step is done again.
func (s *Store) compactStep(revision int64) error {
	it, err := s.db.NewIter(
		&pebble.IterOptions{LowerBound: logKey(s.history.logDeletedTo + 1), UpperBound: logKey(revision + 1)},
	)
	if err != nil {
		return err
	}
	defer it.Close()
	b := s.db.NewBatch()
	defer b.Close()
	done, n := revision, 0
	deleted := garbage{}
	for ok := it.First(); ok; ok = it.Next() {
		at, err := parseLogKey(it.Key())
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		err = decodeLog(value, func(key []byte, op logOp) error {
			if op.prev != 0 {
				deleteVersion(b, &deleted, string(key), op)
			}
			if op.deleted {
				mustSucceed(b.Delete(appendVersionKey(nil, string(key), at), nil))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n++; n == compactStepRecords {
			done = at
			break
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	mustSucceed(b.DeleteRange(logKey(0), logKey(done+1), nil))
	mustSucceed(b.Set([]byte(metaCompacted), encodeNumber(revision), nil))
	if err := s.applyUnsynced(b); err != nil {
		return err
	}
	s.history.logDeletedTo = done
	s.reclaimer.add(&deleted)
	return nil
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

// applyUnsynced applies a batch of background work without a sync. An error stops the store.
func (s *Store) applyUnsynced(b *pebble.Batch) error {
	_, err := guardPanic(func() (struct{}, error) { return struct{}{}, s.db.Apply(b, pebble.NoSync) })
	if err != nil {
		return s.pipeline.fail(err)
	}
	return nil
}
